// SampleSpec: defines which values of a record form a sample, and which tensors they become.
//
//   image: NAME         an encoded image       -> `input` U8 [channels, height, width]
//   input: [NAME, …]    bytes, or numbers      -> `input` U8 or F32, of input_shape
//   label: NAME         a class                -> `label` I64
//   mask: NAME          a class per pixel      -> `mask` U8 [height, width]; 255: ignored
//   target: [NAME, …]   numbers                -> `target` F32 [num_targets]
//   text: NAME          bytes are tokens; the texts of all records are one stream
//   others: [NAME, …]   numbers                -> NAME F32 []
//   lists: [{name: NAME …}]  lists of numbers  -> NAME F32 or I64 [shape …], or [max_length, shape …],
//                                                 padded with a number
//   caption: NAME       texts                  -> `labels` I64 [max_captions, max_label_length], the
//                                                 words and their end, padded with -100; then
//                                                 `references` U8 [kReferenceBytes], all captions,
//                                                 one per line, padded with 0
//
// The values of several names of an input, or of a target, are concatenated. With
// sequence.max_length, a record is a variable-length sequence that is padded to the length of its
// batch:
//
//   input:  [NAME]   numbers, input_shape per step       -> `input` F32 [length, input_shape …]
//   text:   NAME     bytes are tokens                    -> `tokens` U8 [length]
//           with tokenizer                               -> `tokens` I32 [length]
//   input_ids: NAME  integers                            -> `tokens` I32 [length]
//   messages: NAME   a conversation (chat_messages.h)    -> `tokens` I32 [length], and `labels` I64
//                                                           [length]: the tokens of the assistant,
//                                                           otherwise -100
//   then `length` I64: the number of valid steps; the padding after them is 0; then
//   label:  NAME     a class                             -> `label` I64
//   labels: NAME     a class per step                    -> `labels` I64 [length]
//           with max_label_length, at most that many     -> `labels` I64 [max_label_length]
//           both are padded with -100
//   target: [NAME]   numbers                             -> `target` F32 [num_targets]
//
// A text without label, labels and target is for language modeling and ends with a byte 0, or with
// the end token of the tokenizer, if there is one.
//
// Formats whose records have no named values (idx, cifar, numpy) derive the fields from their
// files.
//
// Threads: values.
// Errors:  of(): kInvalidArgument, naming the setting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/word_vocabulary.h"
#include "shared/data/transform/image_decoder_input.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::record {

inline constexpr int64_t kPaddedLabel = -100;  // PyTorch's ignore_index
// Fills what a batch has behind the last step of a sample: labels with kPaddedLabel, other tensors with
// zeros.
void fill_padding(std::span<std::byte> padding, bool is_labels);

// What an input consists of. Defined by the settings for images and by the first record for all
// other inputs. Stored in indexes: never renumber.
enum class InputForm : uint64_t { kImage = 0, kBytes = 1, kNumbers = 2 };

// All captions of an image; COCO's have 60 bytes each.
inline constexpr uint64_t kReferenceBytes = 4096;

// kPriority and kGroup are no part of a sample.
enum class FieldRole {
  kImage,
  kInput,
  kText,
  kMessages,
  kInputIds,
  kLabel,
  kLabels,
  kMask,
  kTarget,
  kCaption,
  kOther,
  kList,
  kPriority,
  kGroup
};
std::string_view to_string(FieldRole role);  // the key below `fields`: "input_ids"

// One tensor of a sample.
struct FieldSpec {
  FieldRole role = FieldRole::kInput;
  size_t num_values = 1;       // values of the record that are concatenated
  DType dtype = DType::kF32;   // of the tensor, independent of the type in the file
  std::vector<int64_t> shape;  // of a sample, or of one step
  std::string name = {};       // of the tensor, for kOther and kList
  // Of a list with another length in each sample, and so less elements than the shape.
  std::optional<int64_t> padding = {};

  int64_t elements() const;  // product of `shape`
  // Behind the input and the target.
  bool is_other() const { return role == FieldRole::kOther || role == FieldRole::kList; }
};

struct SampleSpec {
  // The names of the values, in order; empty if records have no names. A reader of streams adds the
  // priority, and an index the group, which are not among num_values().
  std::vector<std::string> names;
  bool has_group = false;
  // The input, then the label, labels, mask, target or caption, if any, then the others and the lists.
  std::vector<FieldSpec> fields;
  std::optional<transform::ImageDecoderInput> image;  // decoder for role kImage
  uint64_t max_length = 0;                            // 0: not sequences
  uint64_t max_label_length = 0;                      // 0: one label per step
  uint64_t num_classes = 0;                           // known after indexing; with a mask before
  std::shared_ptr<const WordVocabulary> vocabulary;   // for role kCaption; else null
  bool truncates_captions = false;                    // longer ones are not an error
  // For roles kText and kMessages; null: the tokens are bytes.
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  config::ChatTemplate chat_template = config::ChatTemplate::kChatml;  // for role kMessages

  // From the settings of a format whose records have named values.
  static Result<SampleSpec> of(const DatasetRequest& request);
  // The same for building an index: with the group if data.NAME.split_by needs it.
  static Result<SampleSpec> for_index(const DatasetRequest& request);
  // An input and a class label.
  static SampleSpec labeled(FieldSpec input);
  static SampleSpec labeled(const transform::ImageDecoderInput& image);
  // An image and its captions, without names.
  static Result<SampleSpec> captioned(const DatasetRequest& request,
                                      const transform::ImageDecoderInput& image);

  const FieldSpec& input() const { return fields.front(); }
  const FieldSpec* maybe_target() const {
    return fields.size() > 1 && !fields[1].is_other() ? &fields[1] : nullptr;
  }
  bool has_target(FieldRole role) const {
    return maybe_target() != nullptr && maybe_target()->role == role;
  }
  // Those behind the input and the target.
  std::span<const FieldSpec> others() const {
    return std::span(fields).subspan(maybe_target() == nullptr ? 1 : 2);
  }
  // Indices in tensors().
  size_t target_tensor() const { return is_sequence() ? 2 : 1; }
  size_t first_other_tensor() const;
  // A text stream, whose samples are not records.
  bool is_text() const { return max_length == 0 && input().role == FieldRole::kText; }
  bool is_sequence() const { return max_length > 0; }
  bool has_messages() const { return input().role == FieldRole::kMessages; }
  bool has_mask() const { return has_target(FieldRole::kMask); }
  bool has_captions() const { return has_target(FieldRole::kCaption); }
  // Whether the tensor of a field has one element per step: its first dimension, before the shape
  // of the field, is the length.
  bool is_per_step(const FieldSpec& field) const {
    return is_sequence() && (field.role == FieldRole::kLabels
                                 ? max_label_length == 0
                                 : field.role != FieldRole::kLabel &&
                                       field.role != FieldRole::kTarget && !field.is_other());
  }
  // A text for language modeling; its classes are the values of a byte, or the tokens.
  bool has_end_token() const {
    return is_sequence() && input().role == FieldRole::kText && maybe_target() == nullptr;
  }

  // What is added to the tokens of each text. A conversation has only what its chat template adds.
  const tokenizer::TextTemplate& text_template() const;

  // The number of values of a record, the index of the label among them, and the field of a value.
  size_t num_values() const {
    size_t values = 0;
    for (const FieldSpec& field : fields) values += field.num_values;
    return values;
  }
  std::optional<size_t> label_value() const;
  std::optional<size_t> group_value() const {
    return has_group ? std::optional(num_values()) : std::nullopt;
  }
  const FieldSpec& field_of(size_t value) const {
    size_t field = 0;
    for (; value >= fields[field].num_values; ++field) value -= fields[field].num_values;
    return fields[field];
  }
  FieldRole role_of(size_t value) const {
    if (value < num_values()) return field_of(value).role;
    return has_group ? FieldRole::kGroup : FieldRole::kPriority;
  }
  // A list of different lengths, which can be 0.
  bool can_be_empty(size_t value) const {
    return value < num_values() && field_of(value).padding.has_value();
  }
  // The setting that selects a value: "fields.input".
  std::string key_of(size_t value) const {
    return "fields." + std::string(to_string(role_of(value)));
  }
  // Sequences: the number of elements per step of a value.
  uint64_t values_per_step(size_t value = 0) const;
  // Adds the name of the value to `status`: "input 'x' is not there".
  Status in_field(size_t value, Status status) const;
  // Of a record without the value: "has no input 'x'".
  std::string missing_text(size_t value) const;

  // For inputs that are neither images nor sequences: the form found in the first record.
  void set_input_form(InputForm form);

  // The tensors of a sample of a batch padded to `length`, by default to the maximum length. Not
  // for text streams.
  std::vector<TensorSpec> tensors(uint64_t length) const;
  std::vector<TensorSpec> tensors() const { return tensors(max_length); }
  // Indices of the tensors whose first dimension is the length.
  std::vector<size_t> length_tensors() const;
  // For DatasetFormatOps::fingerprint_text: equal texts mean equal samples.
  std::string fingerprint_text() const;
  // The part of it that describes captions.
  std::string caption_text() const;
};

// num_targets; by default the number of names in fields.target.
Result<int64_t> targets_of(const DatasetRequest& request);

}  // namespace stoker::data::record
