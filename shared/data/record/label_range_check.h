// LabelRangeCheck: checks that the labels, masks and tokens of a sample are in the range that the
// model and the task support.
//
// The data formats check labels only against what their own files declare. They know neither the
// vocabulary size of the model nor that class 0 of task ctc is the blank and not a label. Batches
// from external producers (feed.producers) are not checked elsewhere at all.
//
// Threads: immutable after construction; any.
// Errors:  kCorrupt, with value, index and the reason for the range: "token 50301 at index 17:
//          model.vocab_size is 50257, so tokens are from 0 to 50256".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
  // For samples with these tensors and `classes` classes, and the model and task of `config`.
  static LabelRangeCheck of(const config::Config& config, const std::vector<TensorSpec>& sample,
                            uint64_t classes);

  bool any() const { return !ranges_.empty(); }
  // `tensors`: those of one sample, in the order of the spec; sequences can be shorter than the
  // spec.
  Status check(std::span<const std::span<const std::byte>> tensors) const;

  // For a batch: the first row with a value out of range, and the error of check(). If all values
  // are valid, RowError::row is `rows`. Each tensor contains its rows contiguously.
  struct RowError {
    size_t row = 0;
    Status status;
  };
  RowError check_rows(std::span<const std::span<const std::byte>> tensors, size_t rows) const;

 private:
  struct LabelRange {
    size_t tensor = 0;
    DType dtype = DType::kI32;  // or I64, U8
    int64_t min_value = 0;
    int64_t max_value = 0;
    std::optional<int64_t> maybe_ignored;  // valid too
    std::string what;                      // "token"
    std::string why;                       // "model.vocab_size is 50257, so tokens are"
  };
  static Status check(const LabelRange& range, std::span<const std::byte> values);

  std::vector<LabelRange> ranges_;
};

// Wraps `data` so that reading a sample with a value out of range is a sample error; returns `data`
// itself if there is nothing to check.
std::unique_ptr<Dataset> with_range_check(const config::Config& config,
                                          std::unique_ptr<Dataset> data);

// kMismatch, with both, if a tokenizer has more tokens than the vocabulary of the model, which the
// classes of data with labels do not tell.
Status check_tokenizer_size(const config::Config& config, uint64_t num_tokens);

}  // namespace stoker::data::record
