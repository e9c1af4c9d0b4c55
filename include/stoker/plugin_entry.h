// The entry point of a plugin, which stoker reads before it calls any other function of the shared
// object. It describes how the plugin was compiled, in a layout that later versions of this header
// keep.
//
// To write a model, include stoker/plugin.h instead, which includes this header.
#pragma once

#include <cstdint>
#include <memory>

namespace stoker::plugin {

class Model;
struct ModelSpec;

// Incremented by every change to the types of plugin.h; plugins must then be recompiled.
inline constexpr uint32_t kVersion = 2;

// Symbol name of the function below.
inline constexpr const char* kEntry = "stoker_plugin";

}  // namespace stoker::plugin

// The order of the fields never changes; new fields are added at the end.
struct StokerPlugin {
  uint32_t version;      // stoker::plugin::kVersion
  uint32_t cxx11_abi;    // _GLIBCXX_USE_CXX11_ABI, which determines the layout of std::string
  uint32_t torch_major;  // version of the LibTorch headers it was compiled with
  uint32_t torch_minor;
  // Can throw; the text of the exception is reported to the user.
  std::shared_ptr<stoker::plugin::Model> (*make)(const stoker::plugin::ModelSpec& spec);
};

extern "C" {
// Defined in the plugin by STOKER_PLUGIN(); stoker looks it up by name.
__attribute__((visibility("default"))) const StokerPlugin* stoker_plugin();
}
