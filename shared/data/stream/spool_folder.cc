#include "shared/data/stream/spool_folder.h"

#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/wait_readable.h"

namespace stoker::data::stream {
namespace {

bool is_regular(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<SpoolFolder> SpoolFolder::open(std::string path, std::set<std::string> taken) {
  STOKER_RETURN_IF_ERROR(list_directory(path).status());
  UniqueFd inotify(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  constexpr uint32_t kEvents = IN_CREATE | IN_MOVED_TO | IN_ONLYDIR;
  if (inotify.valid() && ::inotify_add_watch(inotify.get(), path.c_str(), kEvents) < 0)
    inotify.reset();
  return SpoolFolder(std::move(path), std::move(taken), std::move(inotify));
}

Result<std::optional<std::string>> SpoolFolder::next(const std::stop_token& stop) {
  for (;;) {
    if (stop.stop_requested()) return stopped_reading(path_);
    STOKER_ASSIGN_OR_RETURN(const std::string name, find_next());
    if (!name.empty()) {
      taken_.insert(name);
      return std::optional(join_path(path_, name));
    }
    if (has_end_) return std::optional<std::string>();
    wait();
  }
}

Result<std::string> SpoolFolder::find_next() {
  STOKER_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_directory(path_));
  has_end_ = std::ranges::binary_search(names, std::string(kEnd));
  std::erase_if(taken_, [&names](const std::string& name) {
    return !std::ranges::binary_search(names, name);
  });
  for (const std::string& name : names)
    if (!name.starts_with('.') && !taken_.contains(name) && is_regular(join_path(path_, name)))
      return name;
  return std::string();
}

// inotify is only a hint: there are no events from other hosts of a network file system.
void SpoolFolder::wait() {
  *waiting_ = true;
  if (is_readable(inotify_.valid() ? inotify_.get() : -1, kStopInterval)) {
    std::array<char, 4096> events;
    while (::read(inotify_.get(), events.data(), events.size()) > 0) {
    }
  }
  *waiting_ = false;
}

Status SpoolFolder::archive(FileSystem& files, const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string done = join_path(folder, kDone);
  const Status made = files.make_directory(done);
  if (!made.ok() && made.code() != StatusCode::kAlreadyExists) return made;
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const Status moved = files.rename(path, join_path(done, name));
  return moved.code() == StatusCode::kNotFound ? Status() : moved;
}

}  // namespace stoker::data::stream
