#include "daemon/cuda/preload_nvrtc.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace stoker::cuda {
namespace {

// The first file in name order that starts with `prefix`; empty if there is none.
std::string find_file(const std::string& directory, const std::string& prefix) {
  std::string first;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && (first.empty() || name < first)) first = name;
  }
  return first.empty() ? "" : directory + '/' + first;
}

// Returns the reason if the library cannot be loaded.
std::string load(const std::string& library) {
  if (::dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL) != nullptr) return {};
  const char* const why = ::dlerror();
  return why != nullptr ? why : library + ": cannot be loaded";
}

}  // namespace

std::string preload_nvrtc(const std::string& directory, int major) {
  const std::string version = std::to_string(major);
  const std::string nvrtc = find_file(directory, "libnvrtc.so." + version);
  // An installed toolkit is in the search path with all its libraries.
  if (nvrtc.empty()) return load("libnvrtc.so." + version);
  const std::string builtins = find_file(directory, "libnvrtc-builtins.so." + version);
  if (builtins.empty()) return directory + ": has no libnvrtc-builtins.so." + version;
  const std::string reason = load(nvrtc);
  return reason.empty() ? load(builtins) : reason;
}

}  // namespace stoker::cuda
