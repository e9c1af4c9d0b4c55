#include "shared/base/deadline.h"

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace stoker {

bool sleep_until(const std::stop_token& stop, Deadline deadline) {
  std::mutex mutex;
  std::condition_variable_any never_notified;
  std::unique_lock lock(mutex);
  const auto never = [] { return false; };
  if (deadline == kNoDeadline)
    never_notified.wait(lock, stop, never);
  else
    never_notified.wait_until(lock, stop, deadline, never);
  return !stop.stop_requested();
}

Status write_within(std::chrono::milliseconds timeout, const std::string& path,
                    std::function<Status()> write) {
  const auto done = std::make_shared<std::promise<Status>>();
  auto written = done->get_future();
  std::thread([done, write = std::move(write)] { done->set_value(write()); }).detach();
  if (written.wait_for(timeout) != std::future_status::ready)
    return Status(StatusCode::kTimedOut, path + ": was not written within " +
                                             std::to_string(timeout.count()) +
                                             " ms, because its storage does not respond; check "
                                             "the disk or the mount");
  return written.get();
}

}  // namespace stoker
