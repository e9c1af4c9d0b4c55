#include "shared/metrics/tensor_summary.h"

#include <array>
#include <charconv>
#include <cmath>

#include <boost/json.hpp>

namespace stoker::metrics {
namespace {

namespace json = boost::json;

// Six significant digits are sufficient for readers and keep records small.
json::value number(double value) {
  if (!std::isfinite(value)) return nullptr;
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6)
          .ptr;
  double rounded = value;
  std::from_chars(text.data(), end, rounded);
  return rounded;
}

json::array pair(double limit, double count) { return {number(limit), number(count)}; }

}  // namespace

json::object to_json(const TensorSummary& summary) {
  const double all = summary.count > 0 ? static_cast<double>(summary.count) : 1.0;
  json::object fields{{"count", summary.count},
                      {"mean", number(summary.mean)},
                      {"std", number(summary.std)},
                      {"min", number(summary.min)},
                      {"max", number(summary.max)},
                      {"norm", number(summary.norm)},
                      {"zero_fraction", number(static_cast<double>(summary.zeros) / all)},
                      {"nan_count", summary.nan},
                      {"inf_count", summary.inf}};
  if (summary.buckets.empty()) return fields;
  json::array histogram;
  histogram.push_back(pair(summary.below, 0));
  for (const auto& bucket : summary.buckets) histogram.push_back(pair(bucket.limit, bucket.count));
  fields["histogram"] = std::move(histogram);
  return fields;
}

}  // namespace stoker::metrics
