// DatasetDecorator: base class of datasets that only change how a sample is read, not the samples
// and their numbers. Forwards everything else, so that subclasses need no change when Dataset gets
// a new method.
//
// Threads:   as Dataset.
// Ownership: the inner dataset must outlive this object.
#pragma once

#include <string>
#include <vector>

#include "shared/data/dataset.h"

namespace stoker::data {

class DatasetDecorator : public Dataset {
 public:
  explicit DatasetDecorator(const Dataset& inner) : inner_(inner) {}

  uint64_t size() const override { return inner_.size(); }
  const std::vector<TensorSpec>& spec() const override { return inner_.spec(); }
  uint64_t classes() const override { return inner_.classes(); }
  std::vector<std::string> class_names() const override { return inner_.class_names(); }
  const std::string& fingerprint() const override { return inner_.fingerprint(); }
  SampleSource source(uint64_t sample) const override { return inner_.source(sample); }
  std::vector<uint64_t> shard_ends() const override { return inner_.shard_ends(); }
  std::vector<uint64_t> component_sizes() const override { return inner_.component_sizes(); }
  uint64_t max_length() const override { return inner_.max_length(); }
  uint64_t length(uint64_t sample) const override { return inner_.length(sample); }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return inner_.spec_of_length(length);
  }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    return inner_.describe_transforms(sample, random_key);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return inner_.read_labels(first, labels);
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    inner_.prefetch(sample, bytes);
  }
  void enable_memory_cache(uint64_t& budget) const override { inner_.enable_memory_cache(budget); }
  std::vector<int> writable_fds() const override { return inner_.writable_fds(); }

 protected:
  const Dataset& inner() const { return inner_; }

 private:
  const Dataset& inner_;
};

}  // namespace stoker::data
