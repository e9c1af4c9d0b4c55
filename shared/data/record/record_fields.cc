#include "shared/data/record/record_fields.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace stoker::data::record {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 30;  // of an input, 4 GiB as F32

// The product of a shape; 0 where it is not one, or too large.
int64_t checked_elements(const std::vector<int64_t>& shape) {
  int64_t elements = shape.empty() ? 0 : 1;
  for (const int64_t side : shape) {
    if (side < 1 || side > kMaxElements / std::max<int64_t>(elements, 1)) return 0;
    elements *= side;
  }
  return elements;
}

// Lengths before the names keep different lists apart, whatever the names hold.
std::string list_text(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ",") + std::to_string(name.size()) + ':' + name;
  return text;
}

bool has_empty(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) { return name.empty(); });
}

}  // namespace

Result<int64_t> targets_of(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  const auto names = static_cast<int64_t>(record.fields.target.size());
  const int64_t targets = record.num_targets.value_or(names);
  if (targets >= names && targets >= 1 && targets <= kMaxElements) return targets;
  return request.config_error("num_targets",
                              "must be at least 1, and at least the number of names in " +
                                  request.key("fields.target") + ", " + std::to_string(names));
}

Result<RecordFields> RecordFields::of(const DatasetRequest& request) {
  const config::FieldNames& names = request.config.record()->fields;
  RecordFields fields;
  if (request.config.has_variable_length()) {
    STOKER_ASSIGN_OR_RETURN(fields.sequence_, SequenceLayout::of(request));
    fields.names_ = fields.sequence_->names();
    fields.inputs_ = 1;
    fields.has_label_ = fields.sequence_->has_label();
    return fields;
  }
  if (!names.text.empty()) {
    if (!names.image.empty() || !names.input.empty() || !names.label.empty() ||
        !names.target.empty())
      return request.config_error("fields.text",
                                  "cannot be combined with image, input, label and target");
    fields.names_ = {names.text};
    return fields;
  }
  STOKER_RETURN_IF_ERROR(names.image.empty() ? fields.take_input(request)
                                             : fields.take_picture(request));
  STOKER_RETURN_IF_ERROR(fields.set_target(request));
  return fields;
}

Status RecordFields::take_input(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  names_ = record.fields.input;
  if (names_.empty() || has_empty(names_))
    return request.config_error(
        "fields.input",
        "is required; set it to the name of the input, or set fields.image or "
        "fields.text");
  inputs_ = names_.size();
  shape_ = record.input_shape;
  if (shape_.empty()) return request.config_error("input_shape", "is required for fields.input");
  if (checked_elements(shape_) > 0) return {};
  return request.config_error("input_shape", "must be positive numbers whose product is at most " +
                                                 std::to_string(kMaxElements));
}

Status RecordFields::take_picture(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  if (!record.fields.input.empty())
    return request.config_error("fields.image", "cannot be combined with fields.input");
  if (!record.input_shape.empty())
    return request.config_error("input_shape", "cannot be combined with fields.image");
  names_ = {record.fields.image};
  inputs_ = 1;
  STOKER_ASSIGN_OR_RETURN(image_, transform::ImageDecoderInput::of(request));
  return {};
}

Status RecordFields::set_target(const DatasetRequest& request) {
  const config::FieldNames& names = request.config.record()->fields;
  if (names.label.empty() && names.target.empty())
    return request.config_error(
        "fields.label", "is required; set it to the name of the label, or set fields.target");
  has_label_ = !names.label.empty();
  if (has_label_) {
    if (!names.target.empty())
      return request.config_error("fields.label", "cannot be combined with fields.target");
    names_.push_back(names.label);
    return {};
  }
  if (has_empty(names.target))
    return request.config_error("fields.target", "must not hold an empty name");
  STOKER_ASSIGN_OR_RETURN(targets_, targets_of(request));
  names_.insert(names_.end(), names.target.begin(), names.target.end());
  return {};
}

std::optional<size_t> RecordFields::label() const {
  return has_label_ ? std::optional(inputs_) : std::nullopt;
}

std::string_view RecordFields::key_of_name(size_t name) const {
  if (sequence_) return sequence_->key_of_name(name);
  if (is_text()) return "text";
  if (name < inputs_) return image_ ? "image" : "input";
  return has_label_ ? "label" : "target";
}

Result<InputForm> RecordFields::input_form(const FieldValue& input) const {
  if (sequence_) return InputForm::kNumbers;
  if (image_ && !is_bytes(input)) {
    return in_field(0,
                    Status(StatusCode::kCorrupt, "is " + describe(input) +
                                                     ", no image; name it in fields.input, with an "
                                                     "input_shape"));
  }
  if (image_) return InputForm::kImage;
  return is_bytes(input) ? InputForm::kBytes : InputForm::kNumbers;
}

std::string RecordFields::to_text() const {
  if (sequence_) return sequence_->to_text();
  const std::span names(names_);
  if (is_text()) return "text=" + list_text(names);
  std::string text = (image_ ? "image=" : "input=") + list_text(names.first(inputs_));
  if (image_) text += ' ' + image_->to_text();
  if (!image_) text += " input_shape=";
  for (size_t i = 0; i < shape_.size(); ++i)
    text += (i == 0 ? "" : "x") + std::to_string(shape_[i]);
  text += (has_label_ ? " label=" : " target=") + list_text(names.subspan(inputs_));
  return has_label_ ? text : text + " num_targets=" + std::to_string(targets_);
}

std::vector<TensorSpec> RecordFields::spec(InputForm form) const {
  assert(!is_text());
  if (sequence_) return sequence_->spec(sequence_->max_length());
  const TensorSpec input =
      image_ ? image_->spec()
             : TensorSpec{.name = "input",
                          .dtype = form == InputForm::kBytes ? DType::kU8 : DType::kF32,
                          .shape = shape_};
  if (has_label_) return {input, {.name = "label", .dtype = DType::kI64, .shape = {}}};
  return {input, {.name = "target", .dtype = DType::kF32, .shape = {targets_}}};
}

Status RecordFields::to_tensors(std::span<const FieldValue> values, InputForm form, uint64_t label,
                                const RandomKey& random_key,
                                std::span<const std::span<std::byte>> outputs) const {
  assert(!is_text() && !sequence_ && values.size() == names_.size() && outputs.size() == 2);
  STOKER_RETURN_IF_ERROR(to_input(values.first(inputs_), form, random_key, outputs[0]));
  if (!has_label_) return to_numbers(values.subspan(inputs_), inputs_, outputs[1]);
  const auto number = static_cast<int64_t>(label);
  std::memcpy(outputs[1].data(), &number, sizeof number);
  return {};
}

std::string RecordFields::describe_transforms(std::span<const FieldValue> values,
                                              const RandomKey& random_key) const {
  const auto* file = image_ ? std::get_if<FieldBytes>(&values[0]) : nullptr;
  return file == nullptr ? std::string() : image_->describe_transforms(*file, random_key);
}

Status RecordFields::to_input(std::span<const FieldValue> values, InputForm form,
                              const RandomKey& random_key, std::span<std::byte> input) const {
  if (form == InputForm::kNumbers) return to_numbers(values, 0, input);
  if (form == InputForm::kImage) {
    const auto* file = std::get_if<FieldBytes>(&values[0]);
    if (file == nullptr)
      return in_field(0, Status(StatusCode::kCorrupt, "is " + describe(values[0]) + ", no image"));
    return in_field(0, image_->read(*file, random_key, input));
  }
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bytes = byte_count(values[i]);
    const bool is_last = i + 1 == values.size();
    const size_t wanted =
        is_last || !bytes ? input.size() - filled : std::min(*bytes, input.size() - filled);
    STOKER_RETURN_IF_ERROR(in_field(i, copy_bytes(values[i], input.subspan(filled, wanted))));
    filled += wanted;
  }
  return {};
}

// `first`: the place of values[0] in names_.
Status RecordFields::to_numbers(std::span<const FieldValue> values, size_t first,
                                std::span<std::byte> out) const {
  // A slot's tensors are aligned for their type (batch_layout.h).
  const std::span<float> numbers(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i)
    STOKER_RETURN_IF_ERROR(in_field(first + i, append_numbers(values[i], numbers, filled)));
  if (filled == numbers.size()) return {};
  const size_t last = first + values.size() - 1;
  return in_field(
      last, Status(StatusCode::kCorrupt, "ends with number " + std::to_string(filled) + " of the " +
                                             std::to_string(numbers.size()) + " that are needed"));
}

Status RecordFields::in_field(size_t name, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(),
                std::string(key_of_name(name)) + " '" + names_[name] + "' " + status.message());
}

}  // namespace stoker::data::record
