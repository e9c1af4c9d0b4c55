#include "shared/data/stream/source_wait.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace stoker::data::stream {
namespace {

pollfd to_read(int fd) { return {.fd = fd, .events = POLLIN, .revents = 0}; }

}  // namespace

bool is_readable(int fd) {
  pollfd entry = to_read(fd);
  return ::poll(&entry, 1, 0) > 0;
}

bool SourceWait::wait(std::span<pollfd> descriptors) {
  count_poll();
  waiting_.store(true, std::memory_order_relaxed);
  const int ready =
      ::poll(descriptors.data(), descriptors.size(), static_cast<int>(kStopInterval.count()));
  waiting_.store(false, std::memory_order_relaxed);
  return ready > 0;
}

bool SourceWait::wait(int fd) {
  pollfd entry = to_read(fd);
  return wait(std::span(&entry, 1));
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
