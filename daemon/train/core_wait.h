// CoreWait: measures how long the threads that compute steps wait for a core, because other programs, or more threads
// than cores, keep it busy.
//
// Threads:  one; those that are measured are the one that calls begin() and what it has created without a name of
//           their own, as OpenMP does.
// Blocking: reads small files of the kernel.
// Errors:   none: what cannot be read is not reported.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace stoker::train {

// In a window of time.
struct CoreShortage {
  double waited =
      0;  // fraction of the time in which the thread that waited most was ready and had no core
  size_t num_threads = 0;  // that computed
  size_t num_cores = 0;    // that they had on average, rounded, at least 1
};

class CoreWait {
 public:
  static constexpr std::chrono::seconds kWindow{30};
  static constexpr double kMinWaited = 0.25;

  explicit CoreWait(std::string tasks = "/proc/self/task",
                    std::chrono::nanoseconds window = kWindow)
      : tasks_(std::move(tasks)), window_(window) {}

  void begin(std::chrono::nanoseconds now, pid_t thread = ::gettid());
  // nullopt: the window since begin(), or since the last one, has not ended, or less than kMinWaited was waited.
  std::optional<CoreShortage> check(std::chrono::nanoseconds now);

 private:
  struct Times {
    double ran = 0, waited = 0;  // seconds, since the thread was created
  };
  std::map<std::string, Times> measure() const;  // by thread

  const std::string tasks_;
  const std::chrono::nanoseconds window_;
  std::string name_;  // of the threads; empty: not known
  std::chrono::nanoseconds began_{0};
  std::map<std::string, Times> before_;
};

}  // namespace stoker::train
