// DatasetDecorator: base class of datasets that only change how a sample is read, not the samples
// and their numbers. Forwards everything else, so that subclasses need no change when Dataset gets
// a new method.
//
// Threads:   as Dataset.
// Ownership: the inner dataset must outlive this object.
#pragma once

#include <cstdint>
#include <span>

#include "shared/data/dataset.h"

namespace stoker::data {

class DatasetDecorator : public Dataset {
 public:
  explicit DatasetDecorator(const Dataset& inner) : inner_(inner) {}

  const DatasetInfo& info() const override { return inner_.info(); }
  SampleSource source(uint64_t sample) const override { return inner_.source(sample); }
  uint64_t length(uint64_t sample) const override { return inner_.length(sample); }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return inner_.read_labels(first, labels);
  }

 protected:
  const Dataset& inner() const { return inner_; }

 private:
  const Dataset& inner_;
};

}  // namespace stoker::data
