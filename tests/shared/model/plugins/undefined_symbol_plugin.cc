// A plugin with an undefined symbol.
#include <stoker/plugin_entry.h>
#include <torch/version.h>

int undefined_symbol();

const StokerPlugin* stoker_plugin() {
  static const StokerPlugin description = {stoker::plugin::kVersion, _GLIBCXX_USE_CXX11_ABI,
                                           TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, nullptr};
  static StokerPlugin changed = description;
  changed.make = [](const stoker::plugin::ModelSpec&) {
    return std::shared_ptr<stoker::plugin::Model>(nullptr, [](void*) { undefined_symbol(); });
  };
  return &changed;
}
