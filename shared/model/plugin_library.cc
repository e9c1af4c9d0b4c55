#include "shared/model/plugin_library.h"

#include <dlfcn.h>
#include <fcntl.h>

#include <array>
#include <cstring>

#include <torch/version.h>

#include "shared/base/file.h"
#include "shared/base/trusted_file.h"

namespace stoker::model {
namespace {

constexpr std::string_view kRecompile =
    "; recompile it with the headers of this stoker (docs/models.md#plugin)";

// The error of dlopen() for a text, an image or a truncated file would not be helpful.
Status check_magic(const std::string& path) {
  constexpr std::string_view kElf = "\177ELF";
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, default_file_system().open(path, O_RDONLY));
  std::array<std::byte, kElf.size()> begin{};
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(fd.get(), 0, begin, path));
  if (got == kElf.size() && std::memcmp(begin.data(), kElf.data(), kElf.size()) == 0) return {};
  return Status(StatusCode::kInvalidArgument,
                path + ": is not a shared object; compile the plugin with -shared -fPIC");
}

// dlerror() often starts with the path.
std::string error_text(const std::string& path) {
  const char* const reported = ::dlerror();
  std::string why = reported != nullptr ? reported : "no reason given";
  if (why.starts_with(path + ": ")) why.erase(0, path.size() + 2);
  return path + ": cannot be loaded: " + why;
}

Status check_entry(const StokerPlugin* entry, const std::string& path) {
  const auto other = [&](const std::string& what) {
    return Status(StatusCode::kMismatch, path + ": was compiled " + what + std::string(kRecompile));
  };
  if (entry == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  path + ": its " + plugin::kEntry +
                      "() returns null; define it with STOKER_PLUGIN(factory)");
  if (entry->version != plugin::kVersion)
    return other("for version " + std::to_string(entry->version) + " of plugins, this stoker has " +
                 std::to_string(plugin::kVersion));
  if (entry->cxx11_abi != _GLIBCXX_USE_CXX11_ABI)
    return other("with _GLIBCXX_USE_CXX11_ABI=" + std::to_string(entry->cxx11_abi) +
                 ", stoker with " + std::to_string(_GLIBCXX_USE_CXX11_ABI));
  if (entry->torch_major != TORCH_VERSION_MAJOR || entry->torch_minor != TORCH_VERSION_MINOR)
    return other("with LibTorch " + std::to_string(entry->torch_major) + '.' +
                 std::to_string(entry->torch_minor) + ", stoker with " TORCH_VERSION);
  if (entry->make == nullptr)
    return Status(StatusCode::kInvalidArgument,
                  path + ": has no factory; pass one to STOKER_PLUGIN()");
  return {};
}

// Returns the entry of a loaded library after checking it.
Result<const StokerPlugin*> checked_entry(void* library, const std::string& path) {
  const auto get = reinterpret_cast<decltype(&stoker_plugin)>(::dlsym(library, plugin::kEntry));
  if (get == nullptr)
    return Status(StatusCode::kInvalidArgument, path + ": has no " + plugin::kEntry +
                                                    "(); end one of its sources with "
                                                    "STOKER_PLUGIN(factory) of stoker/plugin.h");
  const StokerPlugin* const entry = get();
  STOKER_RETURN_IF_ERROR(check_entry(entry, path));
  return entry;
}

// A plugin that was compiled for another LibTorch can lack symbols; report the version mismatch in
// that case. Only the entry of a partially resolved library is called.
Status load_error_text(const std::string& path) {
  const Status missing(StatusCode::kInvalidArgument, error_text(path));
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return missing;
  const auto entry = checked_entry(library, path);
  return entry.ok() ? missing : entry.status();
}

}  // namespace

Result<const StokerPlugin*> load_plugin(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string real, trusted_file(path));
  STOKER_RETURN_IF_ERROR(check_magic(real));
  // RTLD_NOW, so that missing symbols are reported here and not during a step.
  void* const library = ::dlopen(real.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return load_error_text(real);
  return checked_entry(library, real);
}

}  // namespace stoker::model
