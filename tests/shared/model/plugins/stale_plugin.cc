// A plugin of another version: built without LibTorch, with the version numbers in STALE_….
#include <stoker/plugin_entry.h>
#include <torch/version.h>

const StokerPlugin* stoker_plugin() {
  static const StokerPlugin description = {STALE_VERSION, STALE_ABI, STALE_MAJOR, STALE_MINOR,
                                           nullptr};
  return &description;
}
