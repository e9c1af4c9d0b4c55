#include "shared/base/readable_format.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>

#include "shared/base/clock.h"

namespace stoker {
namespace {

// "12345" as "12 345".
std::string grouped(std::string digits) {
  const size_t begin = digits.starts_with('-') ? 1 : 0;
  for (size_t at = digits.size(); at > begin + 3;) {
    at -= 3;
    digits.insert(at, 1, ' ');
  }
  return digits;
}

// Whether the value is exactly between two texts, such as 0.125 with two digits: printf rounds to even, the page away
// from zero. Other numbers differ from one that is within 17 digits.
bool is_tie(double value, int digits) {
  constexpr int kExactDigits = 40;
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*e", kExactDigits, std::abs(value));
  const std::string_view rest =
      std::string_view(text.data()).substr(static_cast<size_t>(digits) + 1);
  return rest.starts_with('5') && rest.find_first_not_of('0', 1) == rest.find('e');
}

}  // namespace

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const double next =
      is_tie(value, digits)
          ? std::nextafter(value, std::copysign(std::numeric_limits<double>::max(), value))
          : value;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%.*e", digits - 1, next);
  std::string rounded = text.data();
  const size_t e = rounded.find('e');
  const int exponent = std::atoi(rounded.c_str() + e + 1);
  if (exponent < -4 || exponent >= 7) return rounded.substr(0, e + 1) + std::to_string(exponent);
  const int decimals = std::max(0, digits - 1 - exponent);
  // 27 795 with three digits is 27 800.
  std::snprintf(text.data(), text.size(), "%.*f", decimals,
                decimals > 0 ? next : std::strtod(rounded.c_str(), nullptr));
  return decimals > 0 ? text.data() : grouped(text.data());
}

std::string format_milliseconds(double value) {
  return value > 0 && value < 0.01 ? "<0.01" : format_rate(value);
}

std::string format_setting(double value) {
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

std::string format_percent(double fraction) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "%.1f", 100 * fraction);
  return text.data();
}

std::string format_count(uint64_t value) { return grouped(std::to_string(value)); }

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return format_rate(value) + " " + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 99.5) {
    std::array<char, 16> text;
    std::snprintf(text.data(), text.size(), seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
    return text.data();
  }
  const auto rounded = static_cast<uint64_t>(std::llround(std::min(seconds, 1e12)));
  const auto pair = [rounded](uint64_t large, const char* large_unit, uint64_t small,
                              const char* small_unit) {
    return std::to_string(rounded / large) + large_unit + std::to_string(rounded % large / small) +
           small_unit;
  };
  if (rounded < 3600) return pair(60, " min ", 1, " s");
  if (rounded < 86400) return pair(3600, " h ", 60, " min");
  return pair(86400, " d ", 3600, " h");
}

double round_estimate(double seconds) {
  const double unit = seconds < 99.5 ? 1 : seconds < 600 ? 10 : seconds < 86400 ? 60 : 3600;
  return std::max(1.0, std::round(seconds / unit) * unit);
}

std::string format_estimate(double seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) return "-";
  const double rounded = round_estimate(seconds);
  if (rounded < 99.5) return std::to_string(std::lround(rounded)) + " s";
  std::string text = format_duration(rounded);
  for (const std::string_view none : {" 0 s", " 0 min", " 0 h"})
    if (text.ends_with(none)) text.erase(text.size() - none.size());
  return text;
}

std::string local_zone() {
  const std::string now = format_local_time(to_iso8601(std::chrono::system_clock::now()));
  return now.substr(now.rfind(' ') + 1);
}

std::string format_local_time(std::string_view iso8601) {
  const auto time = parse_iso8601(iso8601);
  if (!time) return std::string(iso8601);
  ::tzset();  // localtime_r() need not
  const std::time_t seconds = std::chrono::system_clock::to_time_t(*time);
  std::tm local{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &local) == nullptr) return std::string(iso8601);
  std::strftime(text.data(), text.size(), "%a %Y-%m-%d %H:%M:%S %Z", &local);
  return text.data();
}

}  // namespace stoker
