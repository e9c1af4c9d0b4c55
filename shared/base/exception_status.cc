#include "shared/base/exception_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <boost/system/system_error.hpp>

#include "shared/base/cgroup.h"

namespace stoker {
namespace {

// The lowest of the control group and of those above it.
std::optional<uint64_t> max_tasks_of_group() {
  const auto group = find_cgroup("pids");
  if (!group) return std::nullopt;
  std::optional<uint64_t> lowest;
  for (const std::string& directory : group->directories)
    if (const auto limit = read_system_number(directory + "/pids.max"))
      lowest = std::min(*limit, lowest.value_or(std::numeric_limits<uint64_t>::max()));
  return lowest;
}

std::optional<uint64_t> max_tasks_of_user() {
  rlimit limit{};
  // It does not apply to root.
  if (::getuid() == 0 || ::getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

bool is_thread_limit(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  return system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
}

// A thread that was joined counts for the limits until the kernel has removed it from /proc.
void wait_until_gone(const std::vector<pid_t>& threads) {
  constexpr auto kPatience = std::chrono::seconds(5);
  constexpr auto kPollInterval = std::chrono::microseconds(100);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (const pid_t thread : threads) {
    const std::string path = "/proc/self/task/" + std::to_string(thread);
    while (::access(path.c_str(), F_OK) == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kPollInterval);
  }
}

// "epoll: Too many open files [system:24]" without what follows "epoll".
Status status_of(const boost::system::system_error& error) {
  const std::string what = error.what();
  return Status::from_errno(error.code().value(),
                            what.substr(0, what.find(": " + error.code().message())));
}

}  // namespace

std::string describe_thread_limits() {
  std::string text;
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (const auto limit = max_tasks_of_user())
    add(std::to_string(*limit) + " of user " + std::to_string(::getuid()) +
        " (ulimit -u, LimitNPROC= of a service)");
  if (const auto limit = max_tasks_of_group())
    add(std::to_string(*limit) + " of the control group (TasksMax= of a service)");
  // Without address space for its stack, a thread is refused with the same error.
  if (rlimit space{}; ::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    add(std::to_string(space.rlim_cur >> 20) +
        " MiB of address space (ulimit -v, LimitAS= of a service)");
  if (const auto limit = read_system_number("/proc/sys/kernel/threads-max"); limit && text.empty())
    add(std::to_string(*limit) + " of the system (sysctl kernel.threads-max, kernel.pid_max)");
  return text.empty() ? "ulimit -u, TasksMax= of a service" : text;
}

Status thread_limit_reached(std::string_view what) {
  return Status(StatusCode::kBusy, std::string(what) +
                                       ": a limit on processes and threads is reached: " +
                                       describe_thread_limits() + "; raise it");
}

Status to_status(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return Status(StatusCode::kOutOfMemory, "out of memory");
  if (is_thread_limit(error)) return thread_limit_reached("cannot start a thread");
  // Its category is that of the system in all that is used here.
  if (const auto* const boost = dynamic_cast<const boost::system::system_error*>(&error))
    return status_of(*boost);
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  const bool has_errno =
      system != nullptr && (system->code().category() == std::generic_category() ||
                            system->code().category() == std::system_category());
  if (!has_errno) return Status(StatusCode::kInternal, error.what());
  return Status(Status::from_errno(system->code().value(), "").code(), error.what());
}

Status check_thread_limit(size_t num_threads) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::vector<pid_t> ids;
  std::vector<std::jthread> threads;
  const auto end_all = [&] {
    {
      const std::lock_guard lock(mutex);
      is_done = true;
    }
    changed.notify_all();
    threads.clear();
    wait_until_gone(ids);
  };
  try {
    ids.reserve(num_threads);
    for (size_t i = 0; i < num_threads; ++i)
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        ids.push_back(::gettid());
        changed.wait(lock, [&] { return is_done; });
      });
  } catch (const std::exception& error) {
    const size_t started = threads.size();
    end_all();
    if (!is_thread_limit(error)) return to_status(error);
    return thread_limit_reached("the run needs " + std::to_string(num_threads) +
                                " more processes and threads, and can start " +
                                std::to_string(started));
  }
  end_all();
  return {};
}

}  // namespace stoker
