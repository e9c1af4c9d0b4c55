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
#include "shared/dataset/split.h"

namespace stoker::dataset {

class NpyArrays : public Dataset {
 public:
  uint64_t size() const final { return part_.size(); }
  uint64_t classes() const final { return classes_; }
  const std::string& fingerprint() const final { return fingerprint_; }
  Origin origin(uint64_t sample) const final { return input_.origin(row_of(sample)); }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const final {
    const bool has_one = classes_ > 0 && answer_.layout().row_elements() == 1;
    return has_one ? read_npy_labels(answer_, row_of(first), labels)
                   : Dataset::read_labels(first, labels);
  }

 protected:
  NpyArrays(std::string fingerprint, const NpyIndex& index, Part part)
      : fingerprint_(std::move(fingerprint)),
        files_(index.data),
        reader_(files_),
        input_(files_, reader_, index.input),
        answer_(files_, reader_, index.answer),
        classes_(index.classes),
        part_(part) {}

  uint64_t row_of(uint64_t sample) const { return part_.begin + sample; }
  const NpyRows& input() const { return input_; }
  const NpyRows& answer() const { return answer_; }

 private:
  const std::string fingerprint_;
  const FileTable files_;
  const FileReader reader_;
  const NpyRows input_;
  const NpyRows answer_;
  const uint64_t classes_;  // 0: the answer is a target
  const Part part_;
};

}  // namespace stoker::dataset
