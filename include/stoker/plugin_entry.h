// The entry of a plugin: what stoker looks for in a shared object before it calls into it. It says
// with what the plugin was compiled, in a form that no later version of this header changes.
//
// Not for writing a model: include stoker/plugin.h, which has this and the rest.
#pragma once

#include <cstdint>
#include <memory>

namespace stoker::plugin {

class Model;
struct ModelSpec;

// Raised by whatever changes the types of plugin.h: a plugin must be compiled anew then.
inline constexpr uint32_t kVersion = 1;

// The function below, by the name under which it is looked up.
inline constexpr const char* kEntry = "stoker_plugin";

}  // namespace stoker::plugin

// Fields are never moved; later ones come after these.
struct StokerPlugin {
  uint32_t version;      // stoker::plugin::kVersion
  uint32_t cxx11_abi;    // _GLIBCXX_USE_CXX11_ABI, which decides what a std::string is
  uint32_t torch_major;  // of the LibTorch whose headers it was compiled with
  uint32_t torch_minor;
  // May throw; the text of what it throws is told to the user.
  std::shared_ptr<stoker::plugin::Model> (*make)(const stoker::plugin::ModelSpec& spec);
};

extern "C" {
// STOKER_PLUGIN() defines it in a plugin; stoker looks it up there.
__attribute__((visibility("default"))) const StokerPlugin* stoker_plugin();
}
