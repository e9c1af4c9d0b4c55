// NpyArrays: what the data sets over numpy's arrays have in common: an array of inputs and one of
// answers, of which each row is a sample.
//
// Threads: as Dataset.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "shared/dataset/dataset.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/npy_index.h"
#include "shared/dataset/npy_rows.h"
#include "shared/dataset/npy_values.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {

class NpyArrays : public Dataset {
 public:
  uint64_t size() const final { return range_.size(); }
  uint64_t classes() const final { return classes_; }
  const std::string& fingerprint() const final { return fingerprint_; }
  SampleSource source(uint64_t sample) const final { return input_.source(row_index(sample)); }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const final {
    const bool has_one = classes_ > 0 && target_array_.layout().row_elements() == 1;
    return has_one ? read_npy_labels(target_array_, row_index(first), labels)
                   : Dataset::read_labels(first, labels);
  }

 protected:
  NpyArrays(std::string fingerprint, const NpyIndex& index, SampleRange range)
      : fingerprint_(std::move(fingerprint)),
        files_(index.data),
        reader_(files_),
        input_(files_, reader_, index.input),
        target_array_(files_, reader_, index.target_array),
        classes_(index.classes),
        range_(range) {}

  uint64_t row_index(uint64_t sample) const { return range_.begin + sample; }
  const NpyRows& input() const { return input_; }
  const NpyRows& target_array() const { return target_array_; }

 private:
  const std::string fingerprint_;
  const FileTable files_;
  const FileReader reader_;
  const NpyRows input_;
  const NpyRows target_array_;
  const uint64_t classes_;  // 0: the answer is a target
  const SampleRange range_;
};

}  // namespace stoker::dataset
