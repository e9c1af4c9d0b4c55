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

std::optional<std::chrono::system_clock::time_point> parse_iso8601(std::string_view text) {
  std::tm parts{};
  int millis = 0;
  const int read = std::sscanf(std::string(text).c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ",
                               &parts.tm_year, &parts.tm_mon, &parts.tm_mday, &parts.tm_hour,
                               &parts.tm_min, &parts.tm_sec, &millis);
  // The clock's 64-bit nanoseconds cannot represent all other years.
  if (read != 7 || parts.tm_year < 1970 || parts.tm_year > 2200) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  const auto time =
      std::chrono::system_clock::from_time_t(::timegm(&parts)) + std::chrono::milliseconds(millis);
  // Rejects non-canonical text that sscanf or timegm accepted.
  if (to_iso8601(time) != text) return std::nullopt;
  return time;
}

}  // namespace stoker
