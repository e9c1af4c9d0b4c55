#include "evaluator/checkpoint_watch.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace stoker::evaluator {

CheckpointWatch::CheckpointWatch(std::string directory)
    : directory_(std::move(directory)), inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  attach();
}

void CheckpointWatch::attach() {
  if (watch_ >= 0 || !inotify_.valid()) return;
  watch_ = ::inotify_add_watch(inotify_.get(), directory_.c_str(),
                               IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF);
}

void CheckpointWatch::wait(std::chrono::milliseconds timeout, std::stop_token stop) {
  attach();
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!stop.stop_requested()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return;
    pollfd entry{inotify_.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min<int64_t>(left.count(), 100))) <= 0) continue;
    alignas(inotify_event) char events[4096];
    ssize_t got = 0;
    bool gone = false;
    while ((got = ::read(inotify_.get(), events, sizeof events)) > 0) {
      for (ssize_t at = 0; at < got;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
        gone |= (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) != 0;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    if (gone) watch_ = -1;  // another directory may stand there by now
    return;
  }
}

}  // namespace stoker::evaluator
