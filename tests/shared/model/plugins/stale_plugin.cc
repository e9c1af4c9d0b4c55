// A plugin as another version would have made it: without LibTorch, and with what STALE_… say.
#include <stoker/plugin_entry.h>
#include <torch/version.h>

const StokerPlugin* stoker_plugin() {
  static const StokerPlugin description = {STALE_VERSION, STALE_ABI, STALE_MAJOR, STALE_MINOR,
                                           nullptr};
  return &description;
}
