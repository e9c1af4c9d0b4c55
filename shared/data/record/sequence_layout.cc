#include "shared/data/record/sequence_layout.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <limits>
#include <optional>

#include "shared/data/record/class_labels.h"
#include "shared/data/record/record_fields.h"

namespace stoker::data::record {
namespace {

constexpr uint64_t kMaxNumbers = uint64_t{1} << 30;  // of a sample, 4 GiB as F32
constexpr int64_t kMaxToken = std::numeric_limits<int32_t>::max();

Status wrong_sequence(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

constexpr size_t kNumbersAtOnce = 256;  // of an array, converted on the stack

// The first of so many whole numbers for which `is_bad` is true.
template <typename IsBad>
std::optional<int64_t> find_number(const FieldValue& value, uint64_t count, const IsBad& is_bad) {
  std::array<int64_t, kNumbersAtOnce> buffer;
  for (uint64_t at = 0; at < count; at += buffer.size()) {
    const FieldInts numbers = whole_numbers(
        value, at, std::span(buffer).first(std::min<uint64_t>(buffer.size(), count - at)));
    const auto found = std::ranges::find_if(numbers, is_bad);
    if (found != numbers.end()) return *found;
  }
  return std::nullopt;
}

template <typename T>
std::span<T> numbers_in(std::span<std::byte> out) {
  // A slot's tensors are aligned for their type (batch_layout.h).
  return {reinterpret_cast<T*>(out.data()), out.size() / sizeof(T)};
}

}  // namespace

// ---- The settings

Result<SequenceLayout> SequenceLayout::of(const DatasetRequest& request) {
  SequenceLayout form;
  const int64_t max_length = request.config.sequence()->max_length.value_or(0);
  if (max_length < 1) return request.config_error("sequence.max_length", "must be at least 1");
  form.max_length_ = static_cast<uint64_t>(max_length);
  STOKER_RETURN_IF_ERROR(form.take_source(request));
  STOKER_RETURN_IF_ERROR(form.set_target(request));
  return form;
}

Status SequenceLayout::take_source(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  const config::FieldNames& fields = record.fields;
  if (!fields.image.empty())
    return request.config_error("fields.image", "cannot be combined with sequence.max_length");
  const size_t sources =
      fields.input.size() + (fields.text.empty() ? 0 : 1) + (fields.input_ids.empty() ? 0 : 1);
  if (sources != 1)
    return request.config_error(
        "fields.input",
        "of sequences must be one field, or else set fields.text or fields.input_ids");
  if (!fields.text.empty()) source_ = Source::kBytes;
  if (!fields.input_ids.empty()) source_ = Source::kTokens;
  names_ = {!fields.text.empty()        ? fields.text
            : !fields.input_ids.empty() ? fields.input_ids
                                        : fields.input.front()};
  if (source_ == Source::kNumbers)
    shape_ = record.input_shape.empty() ? std::vector<int64_t>{1} : record.input_shape;
  for (const int64_t side : shape_) {
    if (side < 1 || static_cast<uint64_t>(side) > kMaxNumbers / numbers_ / max_length_)
      return request.config_error(
          "input_shape",
          "must be positive numbers whose product, times sequence.max_length, is at "
          "most " +
              std::to_string(kMaxNumbers));
    numbers_ *= static_cast<uint64_t>(side);
  }
  return {};
}

Status SequenceLayout::set_target(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  const config::FieldNames& fields = record.fields;
  const int answers = (fields.label.empty() ? 0 : 1) + (fields.labels.empty() ? 0 : 1) +
                      (fields.target.empty() ? 0 : 1);
  if (answers > 1)
    return request.config_error("fields.label", "cannot be combined with labels and target");
  if (!fields.label.empty()) {
    target_role_ = TargetRole::kLabel;
    names_.push_back(fields.label);
  } else if (!fields.labels.empty()) {
    target_role_ = TargetRole::kLabels;
    names_.push_back(fields.labels);
    max_label_length_ = static_cast<uint64_t>(record.sequence.max_label_length.value_or(0));
  } else if (!fields.target.empty()) {
    target_role_ = TargetRole::kTarget;
    STOKER_ASSIGN_OR_RETURN(targets_, targets_of(request));
    names_.insert(names_.end(), fields.target.begin(), fields.target.end());
  } else if (source_ == Source::kNumbers) {
    return request.config_error(
        "fields.label",
        "is required; set it to the name of the label, or set fields.labels or "
        "fields.target");
  }
  return {};
}

std::string_view SequenceLayout::key_of_name(size_t name) const {
  if (name == 0)
    return source_ == Source::kNumbers ? "input" : source_ == Source::kBytes ? "text" : "input_ids";
  if (target_role_ == TargetRole::kLabels) return "labels";
  return target_role_ == TargetRole::kLabel ? "label" : "target";
}

std::string SequenceLayout::to_text() const {
  std::string text = "max_length=" + std::to_string(max_length_);
  for (size_t i = 0; i < names_.size(); ++i)
    text += ' ' + std::string(key_of_name(i)) + '=' + std::to_string(names_[i].size()) + ':' +
            names_[i];
  for (size_t i = 0; i < shape_.size(); ++i)
    text += (i == 0 ? " input_shape=" : "x") + std::to_string(shape_[i]);
  if (max_label_length_ > 0) text += " max_label_length=" + std::to_string(max_label_length_);
  if (targets_ > 0) text += " num_targets=" + std::to_string(targets_);
  return text;
}

std::vector<TensorSpec> SequenceLayout::spec(uint64_t length) const {
  const auto steps = static_cast<int64_t>(length);
  std::vector<int64_t> shape{steps};
  shape.insert(shape.end(), shape_.begin(), shape_.end());
  const bool is_input = source_ == Source::kNumbers;
  const DType dtype = is_input ? DType::kF32 : source_ == Source::kBytes ? DType::kU8 : DType::kI32;
  std::vector<TensorSpec> spec{
      {.name = is_input ? "input" : "tokens", .dtype = dtype, .shape = std::move(shape)},
      {.name = "length", .dtype = DType::kI64, .shape = {}}};
  const int64_t labels = max_label_length_ > 0 ? static_cast<int64_t>(max_label_length_) : steps;
  if (target_role_ == TargetRole::kLabel)
    spec.push_back({.name = "label", .dtype = DType::kI64, .shape = {}});
  if (target_role_ == TargetRole::kLabels)
    spec.push_back({.name = "labels", .dtype = DType::kI64, .shape = {labels}});
  if (target_role_ == TargetRole::kTarget)
    spec.push_back({.name = "target", .dtype = DType::kF32, .shape = {targets_}});
  return spec;
}

// ---- How long a record is

Result<uint64_t> SequenceLayout::num_elements(const FieldValue& value) const {
  if (source_ == Source::kBytes) {
    const auto* bytes = std::get_if<FieldBytes>(&value);
    if (bytes == nullptr) return wrong_sequence("is " + describe(value) + ", no text");
    return bytes->empty() ? 0 : bytes->size() + (has_end() ? 1 : 0);
  }
  if (source_ == Source::kTokens) return whole_number_count(value);
  const auto count = number_count(value);
  if (!count) return wrong_sequence("is " + describe(value) + ", no list of numbers");
  if (*count % numbers_ == 0) return *count / numbers_;
  return wrong_sequence("has " + std::to_string(*count) + " numbers, which are not " +
                        std::to_string(numbers_) + " for each place, as input_shape says");
}

Result<SequenceLayout::Measure> SequenceLayout::measure(std::span<const FieldValue> values) const {
  assert(values.size() == names_.size());
  Measure measure;
  const auto length = num_elements(values[0]);
  if (!length) return in_field(0, length.status());
  measure.length = *length;
  if (target_role_ != TargetRole::kLabels) return measure;
  const auto labels = whole_number_count(values[1]);
  if (!labels) return in_field(1, labels.status());
  measure.labels = *labels;
  const auto bad = find_number(values[1], measure.labels, [&measure](int64_t label) {
    if (label == kPaddedLabel) return false;
    if (label < 0 || label >= static_cast<int64_t>(kMaxClasses)) return true;
    measure.classes = std::max(measure.classes, static_cast<uint64_t>(label) + 1);
    return false;
  });
  if (bad)
    return in_field(1, wrong_sequence("holds " + std::to_string(*bad) + ", no class (0 to " +
                                      std::to_string(kMaxClasses - 1) + "), nor -100 for none"));
  if (max_label_length_ == 0 && measure.labels != measure.length)
    return in_field(1,
                    wrong_sequence("has " + std::to_string(measure.labels) + " labels for the " +
                                   std::to_string(measure.length) + " places of " + names_[0] +
                                   "; where they are not one each, say how many there may be with "
                                   "sequence.max_label_length"));
  return measure;
}

// ---- From values to tensors

Status SequenceLayout::to_tensors(std::span<const FieldValue> values, const Known& known,
                                  std::span<const std::span<std::byte>> outputs) const {
  assert(values.size() == names_.size());
  assert(outputs.size() == (target_role_ == TargetRole::kNone ? 2 : 3));
  const auto length = num_elements(values[0]);
  if (!length) return in_field(0, length.status());
  if (*length != known.length)
    return in_field(0, wrong_sequence("has another length than when the file was indexed"));
  const uint64_t own = std::min(*length, max_length_);
  STOKER_RETURN_IF_ERROR(in_field(0, write_steps(values[0], own, outputs[0])));
  numbers_in<int64_t>(outputs[1])[0] = static_cast<int64_t>(own);
  if (target_role_ == TargetRole::kLabel)
    numbers_in<int64_t>(outputs[2])[0] = static_cast<int64_t>(known.label);
  if (target_role_ == TargetRole::kLabels)
    return in_field(1, to_labels(values[1], own, known.classes, outputs[2]));
  if (target_role_ == TargetRole::kTarget) return to_target(values.subspan(1), outputs[2]);
  return {};
}

Status SequenceLayout::write_steps(const FieldValue& value, uint64_t own,
                                   std::span<std::byte> out) const {
  size_t filled = 0;  // bytes
  if (source_ == Source::kNumbers) {
    const std::span<float> numbers = numbers_in<float>(out);
    assert(own * numbers_ <= numbers.size());
    STOKER_RETURN_IF_ERROR(append_numbers(first_numbers(value, own * numbers_), numbers, filled));
    filled *= sizeof(float);
  } else if (source_ == Source::kBytes) {
    const FieldBytes text = std::get<FieldBytes>(value);
    filled = std::min<size_t>(own, text.size());  // an end of it is as the padding
    assert(own <= out.size());
    std::memcpy(out.data(), text.data(), filled);
  } else {
    const std::span<int32_t> tokens = numbers_in<int32_t>(out);
    assert(own <= tokens.size());
    const auto bad = find_number(value, own, [&](int64_t token) {
      if (token < 0 || token > kMaxToken) return true;
      tokens[filled++] = static_cast<int32_t>(token);
      return false;
    });
    if (bad)
      return wrong_sequence("holds " + std::to_string(*bad) + ", no token (0 to " +
                            std::to_string(kMaxToken) + ")");
    filled *= sizeof(int32_t);
  }
  std::ranges::fill(out.subspan(filled), std::byte{0});
  return {};
}

Status SequenceLayout::to_labels(const FieldValue& value, uint64_t own, uint64_t classes,
                                 std::span<std::byte> out) const {
  STOKER_ASSIGN_OR_RETURN(const uint64_t given, whole_number_count(value));
  const std::span<int64_t> labels = numbers_in<int64_t>(out);
  const bool one_each = max_label_length_ == 0;
  if (one_each ? given < own : given > labels.size())
    return wrong_sequence("has another number of labels than when the file was indexed");
  const auto kept = labels.first(one_each ? own : given);
  copy_whole_numbers(first_numbers(value, kept.size()), kept);
  for (const int64_t label : kept)
    if (label != kPaddedLabel && (label < 0 || static_cast<uint64_t>(label) >= classes))
      return wrong_sequence("holds label " + std::to_string(label) +
                            ", which was not there when the file was indexed");
  std::ranges::fill(labels.subspan(kept.size()), kPaddedLabel);
  return {};
}

Status SequenceLayout::to_target(std::span<const FieldValue> values,
                                 std::span<std::byte> out) const {
  const std::span<float> numbers = numbers_in<float>(out);
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i)
    STOKER_RETURN_IF_ERROR(in_field(1 + i, append_numbers(values[i], numbers, filled)));
  if (filled == numbers.size()) return {};
  return in_field(values.size(),
                  wrong_sequence("ends with number " + std::to_string(filled) + " of the " +
                                 std::to_string(numbers.size()) + " that are needed"));
}

Status SequenceLayout::in_field(size_t name, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(),
                std::string(key_of_name(name)) + " '" + names_[name] + "' " + status.message());
}

}  // namespace stoker::data::record
