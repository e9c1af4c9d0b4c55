#include "shared/feed/padding_stats.h"

#include <cstdio>
#include <string>

#include "shared/base/log.h"
#include "shared/dataset/length_buckets.h"

namespace stoker::feed {
namespace {

std::string percent(double part) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * part);
  return text;
}

double padding_ratio(const dataset::Dataset& data) {
  double places = 0;
  for (uint64_t sample = 0; sample < data.size(); ++sample)
    places += static_cast<double>(data.length(sample));
  return 1 - places / (static_cast<double>(data.max_length()) * static_cast<double>(data.size()));
}

// "32: 120, 64: 41": how many samples there are of each length.
std::string format_buckets(const dataset::LengthBuckets& buckets) {
  std::string text;
  for (const auto& bucket : buckets.buckets())
    text += (text.empty() ? "" : ", ") + std::to_string(bucket.length) + ": " +
            std::to_string(bucket.size);
  return text;
}

}  // namespace

void log_padding_ratio(const dataset::Dataset& data, const dataset::PlanOptions& options) {
  if (data.max_length() == 0) return;
  if (options.maybe_buckets == nullptr) {
    log_info("padding ratio measured",
             {{"dataset", "train"},
              {"padding", percent(padding_ratio(data))},
              {"max_length", data.max_length()},
              {"hint", "feed.bucket_boundaries batches samples of about one length"}});
    return;
  }
  const dataset::LengthBuckets& buckets = *options.maybe_buckets;
  log_info("padding ratio measured",
           {{"dataset", "train"},
            {"padding", percent(buckets.padding())},
            {"padding_without_buckets", percent(buckets.padding_without())},
            {"max_length", data.max_length()},
            {"bucket_sizes", format_buckets(buckets)}});
}

}  // namespace stoker::feed
