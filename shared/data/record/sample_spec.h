// SampleSpec: which values of a record make a sample, and the tensors that they become.
//
//   image: NAME         an encoded image       -> `input` U8 [channels, height, width]
//   input: [NAME, …]    bytes, or numbers      -> `input` U8 or F32, of input_shape
//   label: NAME         a class                -> `label` I64
//   target: [NAME, …]   numbers                -> `target` F32 [num_targets]
//   text: NAME          bytes are tokens; the texts of all records are one stream
//
// Several names of an input, or of a target, are concatenated. With sequence.max_length a record is a
// sequence of variable length, padded to the length of its batch:
//
//   input:  [NAME]   numbers, input_shape of them a step -> `input` F32 [length, input_shape …]
//   text:   NAME     bytes are tokens                    -> `tokens` U8 [length]
//   input_ids: NAME  whole numbers                       -> `tokens` I32 [length]
//   then `length` I64: the number of valid steps; behind them are zeros; then
//   label:  NAME     a class                             -> `label` I64
//   labels: NAME     a class per step                    -> `labels` I64 [length], -100 behind its end
//           with max_label_length, at most that many     -> `labels` I64 [max_label_length], the same
//   target: [NAME]   numbers                             -> `target` F32 [num_targets]
//
// A text without any of these, which a model learns to continue, has a byte 0 at its end.
//
// Formats whose records have no names (idx, cifar, numpy) fill in the fields from what their files say.
//
// Threads: values.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset_request.h"
#include "shared/data/transform/image_decoder_input.h"

namespace stoker::data::record {

inline constexpr int64_t kPaddedLabel = -100;  // PyTorch's ignore_index

// What an input is made of. The settings say so of images, the first record of the rest. Stored in
// indexes: never renumber.
enum class InputForm : uint64_t { kImage = 0, kBytes = 1, kNumbers = 2 };

enum class FieldRole { kImage, kInput, kText, kInputIds, kLabel, kLabels, kTarget };
std::string_view to_string(FieldRole role);  // the key below `fields`: "input_ids"

// One tensor of a sample.
struct FieldSpec {
  FieldRole role = FieldRole::kInput;
  size_t num_values = 1;       // of the record, concatenated
  DType dtype = DType::kF32;   // of the tensor, whatever the file holds
  std::vector<int64_t> shape;  // of a sample, or of one step
  bool is_sequence = false;    // the sample's length comes before `shape`
  bool must_be_finite = true;  // else NaN and infinity are passed on, as the file has them

  int64_t elements() const;  // product of `shape`
};

struct SampleSpec {
  // The names of the values, in order; empty where records have none.
  std::vector<std::string> names;
  // The input; then the label, labels or target, where there are such.
  std::vector<FieldSpec> fields;
  std::optional<transform::ImageDecoderInput> image;  // of role kImage: its decoder
  uint64_t max_length = 0;                            // 0: no sequences
  uint64_t max_label_length = 0;                      // 0: one label per step
  uint64_t num_classes = 0;                           // known once the records are indexed

  // Of a format whose records have named values, as its settings say.
  static Result<SampleSpec> of(const DatasetRequest& request);
  // An input and a class label.
  static SampleSpec labeled(FieldSpec input);
  static SampleSpec labeled(const transform::ImageDecoderInput& image);

  const FieldSpec& input() const { return fields.front(); }
  const FieldSpec* maybe_target() const { return fields.size() > 1 ? &fields[1] : nullptr; }
  bool has_target(FieldRole role) const { return fields.size() > 1 && fields[1].role == role; }
  // A stream of texts, whose samples are no records.
  bool is_text() const { return max_length == 0 && input().role == FieldRole::kText; }
  bool is_sequence() const { return max_length > 0; }
  // A text that a model learns to continue: its classes are the values of a byte.
  bool has_end_token() const {
    return is_sequence() && input().role == FieldRole::kText && fields.size() == 1;
  }

  // Of the values of a record: how many there are, the place of the label, and the field of each.
  size_t num_values() const {
    return input().num_values + (fields.size() > 1 ? fields[1].num_values : 0);
  }
  std::optional<size_t> label_value() const;
  const FieldSpec& field_of(size_t value) const {
    return fields[value < input().num_values ? 0 : 1];
  }
  // The setting that names a value: "fields.input".
  std::string key_of(size_t value) const {
    return "fields." + std::string(to_string(field_of(value).role));
  }
  // Of a sequence's value: how many numbers a step has.
  uint64_t values_per_step(size_t value = 0) const;
  // `status` of a value, naming it: "input 'x' is not there".
  Status in_field(size_t value, const Status& status) const;

  // Of an input that is neither image nor sequence: what the first record has.
  void set_input_form(InputForm form);

  // The tensors of a batch of that length; of an unbatched sample the longest. Not of a stream of texts.
  std::vector<TensorSpec> tensors(uint64_t length) const;
  std::vector<TensorSpec> tensors() const { return tensors(max_length); }
  // Those of them whose first dimension is the length.
  std::vector<size_t> length_tensors() const;
  // For DatasetFormatOps::fingerprint_text: equal texts, equal samples.
  std::string fingerprint_text() const;
};

// num_targets; where it is not given, one for each name of fields.target.
Result<int64_t> targets_of(const DatasetRequest& request);

}  // namespace stoker::data::record
