#include "evaluator/directory_watcher.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

bool is_directory(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

DirectoryWatcher::DirectoryWatcher(const std::vector<std::string>& directories, Backend backend) {
  if (backend == Backend::kInotify) inotify_ = UniqueFd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  for (const std::string& directory : directories) watched_.push_back({directory});
  add_new_watches();
}

bool DirectoryWatcher::add_new_watches() {
  bool is_new = false;
  for (Watched& one : watched_) {
    const bool existed = one.exists;
    one.exists = is_directory(one.directory);
    is_new |= one.exists && !existed;
    if (one.exists && one.watch < 0 && inotify_.valid()) {
      one.watch = ::inotify_add_watch(inotify_.get(), one.directory.c_str(),
                                      IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF);
    }
  }
  return is_new;
}

bool DirectoryWatcher::drain_events() {
  alignas(inotify_event) char events[4096];
  ssize_t got = 0;
  bool any = false;
  while ((got = ::read(inotify_.get(), events, sizeof events)) > 0) {
    for (ssize_t at = 0; at < got;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
      any = true;
      if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) != 0) {
        // The path can be another directory by now, so watch it again.
        for (Watched& one : watched_) {
          if (one.watch != event->wd) continue;
          if ((event->mask & IN_IGNORED) == 0) ::inotify_rm_watch(inotify_.get(), one.watch);
          one.watch = -1;
          one.exists = false;
        }
      }
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  return any;
}

void DirectoryWatcher::wait(std::chrono::milliseconds timeout, std::stop_token stop) {
  const auto end = SteadyClock::now() + timeout;
  while (!stop.stop_requested()) {
    if (add_new_watches()) return;
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(end - SteadyClock::now());
    if (remaining <= 0ms) return;
    const auto part =
        static_cast<int>(std::min<std::chrono::milliseconds>(remaining, 100ms).count());
    pollfd entry{inotify_.get(), POLLIN, 0};
    if (::poll(&entry, inotify_.valid() ? 1 : 0, part) > 0 && drain_events()) return;
  }
}

}  // namespace stoker::evaluator
