// Clock: source of time, replaceable by a fake in tests.
//
// Threads:  every method may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace stoker {

class Clock {
 public:
  virtual ~Clock() = default;
  // For intervals and timeouts; never jumps.
  virtual std::chrono::nanoseconds monotonic() const = 0;
  virtual std::chrono::system_clock::time_point wall() const = 0;  // for display; can jump
};

Clock& system_clock();

// A clock that advances only by advance().
class ManualClock : public Clock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    return std::chrono::nanoseconds(now_.load());
  }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::time_point(
        std::chrono::duration_cast<std::chrono::system_clock::duration>(monotonic()));
  }
  void advance(std::chrono::nanoseconds by) { now_ += by.count(); }

 private:
  std::atomic<int64_t> now_{0};  // written by the test's thread
};

double seconds_between(std::chrono::nanoseconds start, std::chrono::nanoseconds end);
std::string to_iso8601(std::chrono::system_clock::time_point time);  // "2026-01-31T12:00:00.123Z"
// Accepts only the format of to_iso8601().
std::optional<std::chrono::system_clock::time_point> parse_iso8601(std::string_view text);

}  // namespace stoker
