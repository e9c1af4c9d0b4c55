#include "shared/feed/padding_report.h"

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

double padding_of(const dataset::Dataset& data) {
  double places = 0;
  for (uint64_t sample = 0; sample < data.size(); ++sample)
    places += static_cast<double>(data.length(sample));
  return 1 - places / (static_cast<double>(data.longest()) * static_cast<double>(data.size()));
}

// "32: 120, 64: 41": how many samples there are of each length.
std::string in_words(const dataset::LengthBuckets& buckets) {
  std::string text;
  for (const auto& bucket : buckets.buckets())
    text += (text.empty() ? "" : ", ") + std::to_string(bucket.length) + ": " +
            std::to_string(bucket.size);
  return text;
}

}  // namespace

void log_padding(const dataset::Dataset& data, const dataset::PlanSettings& settings) {
  if (data.longest() == 0) return;
  if (settings.maybe_buckets == nullptr) {
    log_info("padding ratio measured",
             {{"dataset", "train"},
              {"padding", percent(padding_of(data))},
              {"max_length", data.longest()},
              {"hint", "feed.bucket_boundaries batches samples of about one length"}});
    return;
  }
  const dataset::LengthBuckets& buckets = *settings.maybe_buckets;
  log_info("padding ratio measured",
           {{"dataset", "train"},
            {"padding", percent(buckets.padding())},
            {"padding_without_buckets", percent(buckets.padding_without())},
            {"max_length", data.longest()},
            {"bucket_sizes", in_words(buckets)}});
}

}  // namespace stoker::feed
