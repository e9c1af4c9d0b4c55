#include "ctl/number_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace stoker::ctl {

int num_decimals(double value, int digits) {
  const double size = std::abs(value);
  const int whole = size < 1 ? 1 : static_cast<int>(std::log10(size)) + 1;
  return std::max(0, digits - whole);
}

std::string format_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-4)) {
    std::snprintf(text, sizeof text, "%.*e", std::min(digits, 3) - 1, value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", num_decimals(value, digits), value);
  }
  return text;
}

std::string format_significant(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string format_setting(double value) { return format_significant(value, 4); }

std::string format_count(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, " ");
  }
  return text;
}

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1000; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return format_number(value, 3) + " " + kUnits[unit];
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 99.5) return format_number(seconds, seconds < 10 ? 2 : 1) + " s";
  const auto whole = static_cast<uint64_t>(std::llround(std::min(seconds, 1e12)));
  const auto pair = [whole](uint64_t large, const char* large_unit, uint64_t small,
                            const char* small_unit) {
    return std::to_string(whole / large) + large_unit + std::to_string(whole % large / small) +
           small_unit;
  };
  if (whole < 3600) return pair(60, " min ", 1, " s");
  if (whole < 86400) return pair(3600, " h ", 60, " min");
  return pair(86400, " d ", 3600, " h");
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls, which some terminals obey as well, are C2 80 to C2 9F in UTF-8.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() &&
                    static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                    static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) ++i;
    out += byte < 0x20 || byte == 0x7F || c1 ? '?' : static_cast<char>(byte);
  }
  return out;
}

}  // namespace stoker::ctl
