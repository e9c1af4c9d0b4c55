#include "shared/metrics/tensor_summary.h"

#include <charconv>

namespace stoker::metrics {
namespace {

// Six significant digits are sufficient for readers and keep records small.
std::string number(double value) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr;
  return std::string(text, end);
}

std::string pair(double limit, double count) {
  return "[" + number(limit) + "," + number(count) + "]";
}

}  // namespace

std::string to_json_fields(const TensorSummary& summary) {
  const double all = summary.count > 0 ? static_cast<double>(summary.count) : 1.0;
  std::string out = "\"count\":" + std::to_string(summary.count);
  out += ",\"mean\":" + number(summary.mean) + ",\"std\":" + number(summary.std);
  out += ",\"min\":" + number(summary.min) + ",\"max\":" + number(summary.max);
  out += ",\"norm\":" + number(summary.norm);
  out += ",\"zero_fraction\":" + number(static_cast<double>(summary.zeros) / all);
  out += ",\"nan_count\":" + std::to_string(summary.nan) +
         ",\"inf_count\":" + std::to_string(summary.inf);
  if (summary.buckets.empty()) return out;
  out += ",\"histogram\":[" + pair(summary.below, 0);
  for (const auto& bucket : summary.buckets) out += "," + pair(bucket.limit, bucket.count);
  return out + "]";
}

}  // namespace stoker::metrics
