#include "shared/control/socket_path.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace stoker::control {

std::string resolve_socket_path(const std::string& setting, const std::string& run_dir,
                                const char* runtime_directory) {
  if (setting != "auto") return setting;
  const std::string_view listed = runtime_directory != nullptr ? runtime_directory : "";
  const std::string first(listed.substr(0, listed.find(':')));
  return (std::filesystem::path(first.empty() ? run_dir : first) / "control.sock").string();
}

Result<SocketAddress> SocketAddress::of(const std::string& path) {
  const std::filesystem::path file_path(path);
  if (path.find('\0') != std::string::npos || !file_path.has_filename())
    return Status(StatusCode::kInvalidArgument,
                  "control socket path '" + path + "' has no file name");
  SocketAddress address;
  address.name_ = file_path.filename().string();
  const std::string parent = file_path.has_parent_path() ? file_path.parent_path().string() : ".";
  address.directory_ = UniqueFd(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!address.directory_.valid()) {
    const int error = errno;
    return Status::from_errno(error, "open directory " + parent)
        .with_context("the control socket " + path);
  }
  std::string text = path;
  if (text.size() > kMaxSocketPathBytes)
    text = "/proc/self/fd/" + std::to_string(address.directory_.get()) + "/" + address.name_;
  if (text.size() > kMaxSocketPathBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "the control socket's file name is " + std::to_string(address.name_.size()) +
                      " bytes long, more than the kernel accepts; use a shorter name: " + path);
  }
  address.address_.sun_family = AF_UNIX;
  std::memcpy(address.address_.sun_path, text.c_str(), text.size() + 1);
  return address;
}

}  // namespace stoker::control
