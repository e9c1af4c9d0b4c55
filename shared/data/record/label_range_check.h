// LabelRangeCheck: which whole numbers the labels and tokens of a sample may be, so that no model is asked
// for what it does not have.
//
// The formats of data look at labels as far as their own files say what these may be. Here is what they
// cannot know: the model's vocabulary, and that class 0 of task ctc is no label. And who fills batches
// without reading files (feed.producers) was asked by nobody yet.
//
// Threads: immutable after construction; any.
// Errors:  kCorrupt, naming value, place and what decides: "token 50301 at place 17: model.vocab_size is
//          50257, so tokens are from 0 to 50256".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

class LabelRangeCheck {
 public:
  // Of samples of these tensors and so many classes, for the model and the task of `config`.
  static LabelRangeCheck of(const config::Config& config, const std::vector<TensorSpec>& sample,
                            uint64_t classes);

  bool any() const { return !ranges_.empty(); }
  // `tensors`: of one sample, in the order of the spec; sequences may be shorter than it says.
  Status check(std::span<const std::span<const std::byte>> tensors) const;

  // Of a batch: the first row that has such a value, and check()'s error; `rows` is its size when all
  // are fine. Each tensor holds its rows one after another.
  struct RowError {
    size_t row = 0;
    Status status;
  };
  RowError check_rows(std::span<const std::span<const std::byte>> tensors, size_t rows) const;

 private:
  struct LabelRange {
    size_t tensor = 0;
    bool is_wide = false;  // I64, else I32
    int64_t min_value = 0;
    int64_t max_value = 0;
    bool has_padding = false;  // kPaddedLabel may stand there too
    std::string what;          // "token"
    std::string why;           // "model.vocab_size is 50257, so tokens"
  };
  static Status check(const LabelRange& range, std::span<const std::byte> values);

  std::vector<LabelRange> ranges_;
};

// `data`, whose read() refuses samples with other values, as any bad one; `data` itself where the
// limits say nothing of it.
std::unique_ptr<Dataset> with_range_check(const config::Config& config,
                                          std::unique_ptr<Dataset> data);

}  // namespace stoker::data::record
