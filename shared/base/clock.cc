#include "shared/base/clock.h"

#include <cstdio>
#include <ctime>

namespace stoker {
namespace {

class SystemClock final : public Clock {
 public:
  std::chrono::nanoseconds monotonic() const override {
    return std::chrono::steady_clock::now().time_since_epoch();
  }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::now();
  }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

double seconds_between(std::chrono::nanoseconds start, std::chrono::nanoseconds end) {
  return std::chrono::duration<double>(end - start).count();
}

std::string to_iso8601(std::chrono::system_clock::time_point time) {
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = millis / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(millis % 1000));
  return text;
}

}  // namespace stoker
