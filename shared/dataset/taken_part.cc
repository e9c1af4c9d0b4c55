#include "shared/dataset/taken_part.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "shared/base/sha256.h"

namespace stoker::dataset {
namespace {

class TakenPart final : public Dataset {
 public:
  TakenPart(std::unique_ptr<Dataset> whole, Part part)
      : whole_(std::move(whole)),
        part_(part),
        fingerprint_(sha256_hex(whole_->fingerprint() + " skip=" + std::to_string(part.begin) +
                                " take=" + std::to_string(part.size()))) {}

  uint64_t size() const override { return part_.size(); }
  const std::vector<TensorSpec>& spec() const override { return whole_->spec(); }
  uint64_t classes() const override { return whole_->classes(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override { return whole_->origin(part_.begin + sample); }
  std::vector<uint64_t> shard_ends() const override {
    return shard_ends_within(whole_->shard_ends(), part_);
  }
  uint64_t longest() const override { return whole_->longest(); }
  uint64_t length(uint64_t sample) const override { return whole_->length(part_.begin + sample); }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return whole_->spec_of_length(length);
  }
  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    return whole_->describe_draws(part_.begin + sample, in_whole(draw));
  }
  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    return whole_->read(part_.begin + sample, in_whole(draw), outputs);
  }
  RowsRead read_rows(std::span<const SampleRead> samples,
                     std::span<const std::span<std::byte>> rows) const override {
    std::vector<SampleRead> wanted(samples.begin(), samples.end());
    for (SampleRead& each : wanted) {
      each.sample += part_.begin;
      each.draw = in_whole(each.draw);
    }
    return whole_->read_rows(wanted, rows);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return whole_->read_labels(part_.begin + first, labels);
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    whole_->prefetch(part_.begin + sample, bytes);
  }
  void keep_samples(uint64_t& room) const override { whole_->keep_samples(room); }
  std::vector<int> writes_to() const override { return whole_->writes_to(); }

 private:
  // A sample keeps its draws whatever is left out before it.
  DrawKey in_whole(DrawKey draw) const {
    draw.sample += part_.begin;
    return draw;
  }

  const std::unique_ptr<Dataset> whole_;
  const Part part_;
  const std::string fingerprint_;
};

}  // namespace

Result<Part> samples_taken(const SetRequest& set, uint64_t size) {
  const uint64_t skip = set.config.skip_samples;
  if (skip >= size)
    return set.wrong("skip_samples", "leaves none of the " + std::to_string(size) + " samples");
  const uint64_t left = size - skip;
  const uint64_t taken = std::min(set.config.max_samples.value_or(left), left);
  if (taken == 0) return set.wrong("max_samples", "must be at least 1");
  return Part{.begin = skip, .end = skip + taken};
}

Result<std::unique_ptr<Dataset>> taken_part(const SetRequest& set, std::unique_ptr<Dataset> whole) {
  STOKER_ASSIGN_OR_RETURN(const Part part, samples_taken(set, whole->size()));
  if (part.size() == whole->size()) return whole;
  return std::unique_ptr<Dataset>(std::make_unique<TakenPart>(std::move(whole), part));
}

}  // namespace stoker::dataset
