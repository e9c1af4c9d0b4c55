#include "shared/data/stream/source_wait.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace stoker::data::stream {
namespace {

bool poll_readable(int fd, std::chrono::milliseconds timeout) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(timeout.count())) > 0;
}

}  // namespace

bool is_readable(int fd) { return poll_readable(fd, std::chrono::milliseconds(0)); }

bool SourceWait::wait(int fd) {
  count_poll();
  waiting_.store(true, std::memory_order_relaxed);
  const bool readable = poll_readable(fd, kStopInterval);
  waiting_.store(false, std::memory_order_relaxed);
  return readable;
}

FolderWatch::FolderWatch(const std::string& path, uint32_t events)
    : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (inotify_.valid() && ::inotify_add_watch(inotify_.get(), path.c_str(), events) < 0)
    inotify_.reset();
}

void FolderWatch::wait(SourceWait& state) {
  if (!state.wait(inotify_.get())) return;
  std::array<char, 4096> events;
  while (::read(inotify_.get(), events.data(), events.size()) > 0) {
  }
}

}  // namespace stoker::data::stream
