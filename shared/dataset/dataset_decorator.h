// DatasetDecorator: a data set that is another one but for how a sample is read; the samples and
// their numbers stay. In one place, so that nothing of Dataset is left out when it grows.
//
// Threads:  as Dataset.
// Owner:    the inner data set must outlive this object.
#pragma once

#include <string>
#include <vector>

#include "shared/dataset/dataset.h"

namespace stoker::dataset {

class DatasetDecorator : public Dataset {
 public:
  explicit DatasetDecorator(const Dataset& inner) : inner_(inner) {}

  uint64_t size() const override { return inner_.size(); }
  const std::vector<TensorSpec>& spec() const override { return inner_.spec(); }
  uint64_t classes() const override { return inner_.classes(); }
  std::vector<std::string> class_names() const override { return inner_.class_names(); }
  const std::string& fingerprint() const override { return inner_.fingerprint(); }
  Origin origin(uint64_t sample) const override { return inner_.origin(sample); }
  std::vector<uint64_t> shard_ends() const override { return inner_.shard_ends(); }
  std::vector<uint64_t> set_sizes() const override { return inner_.set_sizes(); }
  uint64_t longest() const override { return inner_.longest(); }
  uint64_t length(uint64_t sample) const override { return inner_.length(sample); }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return inner_.spec_of_length(length);
  }
  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    return inner_.describe_draws(sample, draw);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return inner_.read_labels(first, labels);
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    inner_.prefetch(sample, bytes);
  }
  void keep_samples(uint64_t& room) const override { inner_.keep_samples(room); }
  std::vector<int> writes_to() const override { return inner_.writes_to(); }

 protected:
  const Dataset& inner() const { return inner_; }

 private:
  const Dataset& inner_;
};

}  // namespace stoker::dataset
