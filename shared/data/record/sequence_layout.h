// SequenceLayout: how the values of a record become a sequence, padded to the length of its batch.
//
//   input:  [NAME]   numbers, input_shape of them a place -> `input` F32 [length, input_shape …]
//   text:   NAME     bytes are tokens                     -> `tokens` U8 [length]
//   input_ids: NAME  whole numbers                        -> `tokens` I32 [length]
//   then `length` I64: how many places are the record's own; the rest is 0; then
//   label:  NAME     a class                              -> `label` I64
//   labels: NAME     a class a place                      -> `labels` I64 [length], -100 behind its end
//           with max_label_length, so many at most        -> `labels` I64 [max_label_length], the same
//   target: [NAME]   numbers                              -> `target` F32 [num_targets]
//
// A text without any of these, which a model learns to continue, has a byte 0 at its end.
//
// Threads: immutable after construction; any.
// Errors:  of(): kInvalidArgument, naming the setting. measure(), to_tensors(): kCorrupt, naming the
//          field; the caller adds which record. Outputs are then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {

inline constexpr int64_t kPaddedLabel = -100;  // PyTorch's ignore_index

class SequenceLayout {
 public:
  static Result<SequenceLayout> of(const DatasetRequest& request);

  // What has to be read of a record, in this order: the sequence, then what is to be predicted.
  const std::vector<std::string>& names() const { return names_; }
  std::string_view key_of_name(size_t name) const;
  bool has_label() const { return target_role_ == TargetRole::kLabel; }
  bool has_labels() const { return target_role_ == TargetRole::kLabels; }
  // A text that a model learns to continue: its classes are the values of a byte.
  bool has_byte_tokens() const { return has_end(); }
  uint64_t max_length() const { return max_length_; }
  uint64_t max_label_length() const { return max_label_length_; }
  // Of an input as its shape says; of tokens, labels and targets one.
  uint64_t values_per_step(size_t name = 0) const { return name == 0 ? numbers_ : 1; }
  std::string to_text() const;  // equal texts, equal forms
  // Of a batch of that length.
  std::vector<TensorSpec> spec(uint64_t length) const;

  struct Measure {
    uint64_t length = 0;   // of all of it
    uint64_t labels = 0;   // how many
    uint64_t classes = 0;  // one more than the largest of them
  };
  Result<Measure> measure(std::span<const FieldValue> values) const;

  // What the index knows of a record.
  struct Known {
    uint64_t length = 0;
    uint64_t label = 0;
    uint64_t classes = 0;
  };
  // The outputs are those of spec(), of a length that is not below that of the record, or longest().
  Status to_tensors(std::span<const FieldValue> values, const Known& known,
                    std::span<const std::span<std::byte>> outputs) const;

 private:
  enum class Source { kNumbers, kBytes, kTokens };
  enum class TargetRole { kNone, kLabel, kLabels, kTarget };

  SequenceLayout() = default;
  Status take_source(const DatasetRequest& request);
  Status set_target(const DatasetRequest& request);
  bool has_end() const { return source_ == Source::kBytes && target_role_ == TargetRole::kNone; }
  Result<uint64_t> num_elements(const FieldValue& value) const;
  Status write_steps(const FieldValue& value, uint64_t own, std::span<std::byte> out) const;
  Status to_labels(const FieldValue& value, uint64_t own, uint64_t classes,
                   std::span<std::byte> out) const;
  Status to_target(std::span<const FieldValue> values, std::span<std::byte> out) const;
  Status in_field(size_t name, const Status& status) const;

  std::vector<std::string> names_;
  Source source_ = Source::kNumbers;
  TargetRole target_role_ = TargetRole::kNone;
  std::vector<int64_t> shape_;  // of a place
  uint64_t numbers_ = 1;        // a place: their product
  uint64_t max_length_ = 1;
  uint64_t max_label_length_ = 0;
  int64_t targets_ = 0;
};

}  // namespace stoker::data::record
