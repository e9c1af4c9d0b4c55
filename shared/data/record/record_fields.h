// RecordFields: which named values of a record make a sample, and how they become its tensors.
//
//   image: NAME         a picture              -> `input` U8 [channels, height, width]
//   input: [NAME, …]    bytes, or numbers      -> `input` U8 or F32, of input_shape
//   label: NAME         a class                -> `label` I64
//   target: [NAME, …]   numbers                -> `target` F32 [num_targets]
//   text: NAME          bytes are tokens; the texts of all records are one stream
//
// With sequence.max_length a record is a sequence: sequence_layout.h.
//
// Several names of an input, or of a target, are put one after another.
//
// Threads: immutable after construction; to_tensors() may be called from any thread, concurrently.
// Errors:  of(): kInvalidArgument, naming the setting. to_tensors(): kCorrupt, kOutOfMemory, naming
//          the field; the caller adds which record. The outputs are then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sequence_layout.h"
#include "shared/data/transform/image_decoder_input.h"

namespace stoker::data::record {

// What an input is made of. The settings say so of pictures, the first record of the rest.
enum class InputForm : uint64_t { kImage = 0, kBytes = 1, kNumbers = 2 };

// num_targets; where it is not given, one for each name of fields.target.
Result<int64_t> targets_of(const DatasetRequest& request);

class RecordFields {
 public:
  static Result<RecordFields> of(const DatasetRequest& request);

  // Null: records are no sequences of various lengths.
  const SequenceLayout* sequence_layout() const { return sequence_ ? &*sequence_ : nullptr; }
  // What has to be read of a record, in this order: input, then label or target; or the text.
  const std::vector<std::string>& names() const { return names_; }
  bool is_text() const { return inputs_ == 0; }
  std::optional<size_t> label() const;  // its place in names()
  // The role of the value: "image", "input", "label", "target", "text".
  std::string_view key_of_name(size_t name) const;
  // The setting that names it: "fields.input".
  std::string key_of(size_t name) const { return "fields." + std::string(key_of_name(name)); }

  // The form of an input whose first record has this value. kCorrupt where the settings do not
  // allow it.
  Result<InputForm> input_form(const FieldValue& input) const;
  // For DatasetFormatOps::fingerprint_text: equal texts, equal fields.
  std::string to_text() const;
  // Not of text, whose samples are no records. Of sequences, the longest.
  std::vector<TensorSpec> spec(InputForm form) const;
  // `values` are those of names(); `label` is the class, and the value of the label is not looked
  // at. Not of sequences, which do it themselves.
  Status to_tensors(std::span<const FieldValue> values, InputForm form, uint64_t label,
                    const RandomKey& random_key,
                    std::span<const std::span<std::byte>> outputs) const;
  // What to_tensors() draws, for Dataset::describe_transforms().
  std::string describe_transforms(std::span<const FieldValue> values,
                                  const RandomKey& random_key) const;

 private:
  RecordFields() = default;
  Status take_input(const DatasetRequest& request);
  Status take_picture(const DatasetRequest& request);
  Status set_target(const DatasetRequest& request);
  Status to_input(std::span<const FieldValue> values, InputForm form, const RandomKey& random_key,
                  std::span<std::byte> input) const;
  Status to_numbers(std::span<const FieldValue> values, size_t first,
                    std::span<std::byte> out) const;
  Status in_field(size_t name, const Status& status) const;

  std::vector<std::string> names_;
  size_t inputs_ = 0;  // of names_; after them the label or the targets
  bool has_label_ = false;
  std::optional<transform::ImageDecoderInput> image_;
  std::optional<SequenceLayout> sequence_;
  std::vector<int64_t> shape_;  // of an input that is no picture
  int64_t targets_ = 0;
};

}  // namespace stoker::data::record
