#include "shared/data/sample_range.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <utility>

#include "shared/base/hash.h"
#include "shared/base/number_format.h"

namespace stoker::data {
namespace {

uint64_t border(double fraction, uint64_t count, double rounding) {
  if (fraction <= 0.0) return 0;
  if (fraction >= 1.0) return count;
  // 0.29 of 100 is 28.999999999999996 in binary; 29 is intended.
  const double position = fraction * static_cast<double>(count) * (1.0 + 1e-12);
  return std::min(count, static_cast<uint64_t>(std::floor(position + rounding)));
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
  if (request.config.splits_samples() || request.config.splits_files()) return SplitFraction();
  const auto& given = request.config.split;
  if (given.size() != 2 || !(given[0] >= 0.0 && given[0] < given[1] && given[1] <= 1.0)) {
    return request.config_error("split", "must be two numbers [from, to] with 0 <= from < to <= 1");
  }
  return SplitFraction{.from = given[0], .to = given[1]};
}

SampleRange SplitFraction::of_count(uint64_t count, double rounding) const {
  return {.begin = border(from, count, rounding), .end = border(to, count, rounding)};
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

// The numbers in the whole dataset, of a range or of a list.
struct RangeOfSamples {
  SampleRange range;

  uint64_t size() const { return range.size(); }
  uint64_t operator[](uint64_t sample) const { return range.begin + sample; }
  // The random numbers of a sample do not depend on skip_samples.
  uint64_t random_number(uint64_t sample) const { return range.begin + sample; }
  Status read_labels(const Dataset& whole, uint64_t first, std::span<int64_t> labels) const {
    return whole.read_labels(range.begin + first, labels);
  }
  std::vector<uint64_t> shard_ends(std::span<const uint64_t> ends) const {
    return shard_ends_within(ends, range);
  }
  std::string fingerprint(const std::string& whole) const {
    return sha256_hex(whole + " skip=" + std::to_string(range.begin) +
                      " take=" + std::to_string(range.size()));
  }
};

struct ListOfSamples {
  std::vector<uint64_t> samples;  // increasing

  uint64_t size() const { return samples.size(); }
  uint64_t operator[](uint64_t sample) const { return samples[sample]; }
  // That of an occurrence of a repeated sample is none of a sample.
  uint64_t random_number(uint64_t sample) const { return sample; }
  // Labels can be in files, so neighbors are read together.
  Status read_labels(const Dataset& whole, uint64_t first, std::span<int64_t> labels) const {
    constexpr uint64_t kAtOnce = 1 << 16;
    std::vector<int64_t> read;
    for (uint64_t i = 0; i < labels.size();) {
      const uint64_t begin = samples[first + i];
      uint64_t end = i;
      while (end < labels.size() && samples[first + end] - begin < kAtOnce) ++end;
      read.resize(samples[first + end - 1] - begin + 1);
      STOKER_RETURN_IF_ERROR(whole.read_labels(begin, read));
      for (; i < end; ++i) labels[i] = read[samples[first + i] - begin];
    }
    return {};
  }
  std::vector<uint64_t> shard_ends(std::span<const uint64_t> ends) const {
    std::vector<uint64_t> of_list;
    for (const uint64_t end : ends) {
      const auto before =
          static_cast<uint64_t>(std::ranges::lower_bound(samples, end) - samples.begin());
      if (before > (of_list.empty() ? 0 : of_list.back())) of_list.push_back(before);
    }
    return of_list;
  }
  // That of the index contains the settings that have chosen the samples.
  std::string fingerprint(const std::string& whole) const { return whole; }
};

template <typename Samples>
class PartOfDataset final : public Dataset, public SampleFiles {
 public:
  PartOfDataset(std::unique_ptr<Dataset> whole, Samples samples)
      : whole_(std::move(whole)), samples_(std::move(samples)), info_(info_of(*whole_, samples_)) {
    if (info_.maybe_files != nullptr) info_.maybe_files = this;
  }

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override { return whole_->source(samples_[sample]); }
  uint64_t length(uint64_t sample) const override { return whole_->length(samples_[sample]); }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    return files_of_whole().describe_transforms(samples_[sample], in_whole(random_key));
  }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    return whole_->read(samples_[sample], in_whole(random_key), outputs);
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    std::vector<SampleReadRequest> wanted(samples.begin(), samples.end());
    for (SampleReadRequest& each : wanted) {
      each.random_key = in_whole(each.random_key);
      each.sample = samples_[each.sample];
    }
    return whole_->read_batch(wanted, rows);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return samples_.read_labels(*whole_, first, labels);
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    files_of_whole().prefetch(samples_[sample], bytes);
  }

 private:
  static DatasetInfo info_of(const Dataset& whole, const Samples& samples) {
    DatasetInfo info = whole.info();
    info.size = samples.size();
    info.fingerprint = samples.fingerprint(info.fingerprint);
    info.shard_ends = samples.shard_ends(whole.shard_ends());
    info.component_sizes.clear();
    return info;
  }
  const SampleFiles& files_of_whole() const { return *whole_->info().maybe_files; }
  RandomKey in_whole(RandomKey random_key) const {
    random_key.sample = samples_.random_number(random_key.sample);
    return random_key;
  }

  const std::unique_ptr<Dataset> whole_;
  const Samples samples_;
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
  return std::unique_ptr<Dataset>(
      std::make_unique<PartOfDataset<RangeOfSamples>>(std::move(whole), RangeOfSamples{range}));
}

Result<std::unique_ptr<Dataset>> with_selected_samples(const DatasetRequest& request,
                                                       std::unique_ptr<Dataset> whole,
                                                       std::vector<uint64_t> samples) {
  const bool are_valid =
      !samples.empty() && samples.back() < whole->size() &&
      std::ranges::adjacent_find(samples, std::greater_equal<>()) == samples.end();
  if (!are_valid)
    return Status(
        StatusCode::kCorrupt,
        "data." + request.name + ": its index does not describe the samples of its split");
  return std::unique_ptr<Dataset>(std::make_unique<PartOfDataset<ListOfSamples>>(
      std::move(whole), ListOfSamples{std::move(samples)}));
}

}  // namespace stoker::data
