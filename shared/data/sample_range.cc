#include "shared/data/sample_range.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/number_format.h"

namespace stoker::data {
namespace {

uint64_t border(double fraction, uint64_t count) {
  if (fraction >= 1.0) return count;
  // 0.29 of 100 is 28.999999999999996 in binary; 29 is intended.
  const double position = fraction * static_cast<double>(count) * (1.0 + 1e-12);
  return std::min(count, static_cast<uint64_t>(std::floor(position)));
}

}  // namespace

std::vector<uint64_t> shard_ends_within(std::span<const uint64_t> ends, const SampleRange& range) {
  std::vector<uint64_t> within;
  uint64_t last = range.begin;
  for (const uint64_t end : ends) {
    if (end <= last || end >= range.end) continue;
    within.push_back(end - range.begin);
    last = end;
  }
  within.push_back(range.size());
  return within;
}

Result<SplitFraction> SplitFraction::of(const DatasetRequest& request) {
  const auto& given = request.config.split;
  if (given.size() != 2 || !(given[0] >= 0.0 && given[0] < given[1] && given[1] <= 1.0)) {
    return request.config_error("split", "must be two numbers [from, to] with 0 <= from < to <= 1");
  }
  return SplitFraction{.from = given[0], .to = given[1]};
}

SampleRange SplitFraction::of_count(uint64_t count) const {
  return {.begin = border(from, count), .end = border(to, count)};
}

std::string SplitFraction::to_text() const {
  return "split=" + format_exact(from) + ':' + format_exact(to);
}

Result<SampleRange> split_range(const DatasetRequest& request, uint64_t samples) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  const SampleRange range = split.of_count(samples);
  if (range.size() == 0)
    return request.config_error("split",
                                "takes none of the " + std::to_string(samples) + " samples");
  return range;
}

namespace {

class SampleRangeDataset final : public Dataset, public SampleFiles {
 public:
  SampleRangeDataset(std::unique_ptr<Dataset> whole, SampleRange range)
      : whole_(std::move(whole)), range_(range), info_(info_of(*whole_, range)) {
    if (info_.maybe_files != nullptr) info_.maybe_files = this;
  }

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return whole_->source(range_.begin + sample);
  }
  uint64_t length(uint64_t sample) const override { return whole_->length(range_.begin + sample); }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    return files_of_whole().describe_transforms(range_.begin + sample, in_whole(random_key));
  }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    return whole_->read(range_.begin + sample, in_whole(random_key), outputs);
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    std::vector<SampleReadRequest> wanted(samples.begin(), samples.end());
    for (SampleReadRequest& each : wanted) {
      each.sample += range_.begin;
      each.random_key = in_whole(each.random_key);
    }
    return whole_->read_batch(wanted, rows);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return whole_->read_labels(range_.begin + first, labels);
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    files_of_whole().prefetch(range_.begin + sample, bytes);
  }

 private:
  static DatasetInfo info_of(const Dataset& whole, const SampleRange& range) {
    DatasetInfo info = whole.info();
    info.size = range.size();
    info.fingerprint = sha256_hex(info.fingerprint + " skip=" + std::to_string(range.begin) +
                                  " take=" + std::to_string(range.size()));
    info.shard_ends = shard_ends_within(whole.shard_ends(), range);
    info.component_sizes.clear();
    return info;
  }
  const SampleFiles& files_of_whole() const { return *whole_->info().maybe_files; }
  // The random numbers of a sample do not depend on skip_samples.
  RandomKey in_whole(RandomKey random_key) const {
    random_key.sample += range_.begin;
    return random_key;
  }

  const std::unique_ptr<Dataset> whole_;
  const SampleRange range_;
  DatasetInfo info_;
};

}  // namespace

Result<SampleRange> selected_range(const DatasetRequest& request, uint64_t size) {
  const uint64_t skip = request.config.skip_samples;
  if (skip >= size)
    return request.config_error("skip_samples",
                                "leaves none of the " + std::to_string(size) + " samples");
  const uint64_t left = size - skip;
  const uint64_t taken = std::min(request.config.max_samples.value_or(left), left);
  if (taken == 0) return request.config_error("max_samples", "must be at least 1");
  return SampleRange{.begin = skip, .end = skip + taken};
}

Result<std::unique_ptr<Dataset>> with_sample_range(const DatasetRequest& request,
                                                   std::unique_ptr<Dataset> whole) {
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, selected_range(request, whole->size()));
  if (range.size() == whole->size()) return whole;
  return std::unique_ptr<Dataset>(std::make_unique<SampleRangeDataset>(std::move(whole), range));
}

}  // namespace stoker::data
