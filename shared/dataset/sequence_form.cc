#include "shared/dataset/sequence_form.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "shared/dataset/class_labels.h"
#include "shared/dataset/record_fields.h"

namespace stoker::dataset {
namespace {

constexpr uint64_t kMostNumbers = uint64_t{1} << 30;  // of a sample, 4 GiB as F32
constexpr int64_t kMostToken = std::numeric_limits<int32_t>::max();

Status wrong(const std::string& what) { return Status(Code::kCorrupt, what); }

// The first numbers of a list.
FieldValue first_of(const FieldValue& value, size_t count) {
  if (const auto* floats = std::get_if<FieldFloats>(&value)) return floats->first(count);
  if (const auto* ints = std::get_if<FieldInts>(&value)) return ints->first(count);
  return value;
}

Result<FieldInts> whole_numbers(const FieldValue& value) {
  const auto* ints = std::get_if<FieldInts>(&value);
  if (ints == nullptr) return wrong("is " + describe(value) + ", no list of whole numbers");
  return *ints;
}

template <typename T>
std::span<T> numbers_in(std::span<std::byte> out) {
  // A slot's tensors are aligned for their type (batch_layout.h).
  return {reinterpret_cast<T*>(out.data()), out.size() / sizeof(T)};
}

}  // namespace

// ---- The settings

Result<SequenceForm> SequenceForm::of(const SetRequest& set) {
  SequenceForm form;
  const int64_t longest = set.config.sequence()->max_length.value_or(0);
  if (longest < 1) return set.wrong("sequence.max_length", "must be at least 1");
  form.longest_ = static_cast<uint64_t>(longest);
  STOKER_RETURN_IF_ERROR(form.take_source(set));
  STOKER_RETURN_IF_ERROR(form.take_answer(set));
  return form;
}

Status SequenceForm::take_source(const SetRequest& set) {
  const config::RecordConfig& record = *set.config.record();
  const config::FieldNames& fields = record.fields;
  if (!fields.image.empty())
    return set.wrong("fields.image", "cannot be combined with sequence.max_length");
  const size_t sources =
      fields.input.size() + (fields.text.empty() ? 0 : 1) + (fields.input_ids.empty() ? 0 : 1);
  if (sources != 1)
    return set.wrong("fields.input",
                     "of sequences must be one field, or else set fields.text or fields.input_ids");
  if (!fields.text.empty()) source_ = Source::kBytes;
  if (!fields.input_ids.empty()) source_ = Source::kTokens;
  names_ = {!fields.text.empty()        ? fields.text
            : !fields.input_ids.empty() ? fields.input_ids
                                        : fields.input.front()};
  if (source_ == Source::kNumbers)
    shape_ = record.input_shape.empty() ? std::vector<int64_t>{1} : record.input_shape;
  for (const int64_t side : shape_) {
    if (side < 1 || static_cast<uint64_t>(side) > kMostNumbers / numbers_ / longest_)
      return set.wrong("input_shape",
                       "must be positive numbers whose product, times sequence.max_length, is at "
                       "most " +
                           std::to_string(kMostNumbers));
    numbers_ *= static_cast<uint64_t>(side);
  }
  return {};
}

Status SequenceForm::take_answer(const SetRequest& set) {
  const config::RecordConfig& record = *set.config.record();
  const config::FieldNames& fields = record.fields;
  const int answers = (fields.label.empty() ? 0 : 1) + (fields.labels.empty() ? 0 : 1) +
                      (fields.target.empty() ? 0 : 1);
  if (answers > 1) return set.wrong("fields.label", "cannot be combined with labels and target");
  if (!fields.label.empty()) {
    answer_ = Answer::kLabel;
    names_.push_back(fields.label);
  } else if (!fields.labels.empty()) {
    answer_ = Answer::kLabels;
    names_.push_back(fields.labels);
    most_labels_ = static_cast<uint64_t>(record.sequence.max_label_length.value_or(0));
  } else if (!fields.target.empty()) {
    answer_ = Answer::kTarget;
    STOKER_ASSIGN_OR_RETURN(targets_, targets_of(set));
    names_.insert(names_.end(), fields.target.begin(), fields.target.end());
  } else if (source_ == Source::kNumbers) {
    return set.wrong("fields.label",
                     "is required; set it to the name of the label, or set fields.labels or "
                     "fields.target");
  }
  return {};
}

std::string_view SequenceForm::setting_of(size_t name) const {
  if (name == 0)
    return source_ == Source::kNumbers ? "input" : source_ == Source::kBytes ? "text" : "input_ids";
  if (answer_ == Answer::kLabels) return "labels";
  return answer_ == Answer::kLabel ? "label" : "target";
}

std::string SequenceForm::to_text() const {
  std::string text = "max_length=" + std::to_string(longest_);
  for (size_t i = 0; i < names_.size(); ++i)
    text +=
        ' ' + std::string(setting_of(i)) + '=' + std::to_string(names_[i].size()) + ':' + names_[i];
  for (size_t i = 0; i < shape_.size(); ++i)
    text += (i == 0 ? " input_shape=" : "x") + std::to_string(shape_[i]);
  if (most_labels_ > 0) text += " max_label_length=" + std::to_string(most_labels_);
  if (targets_ > 0) text += " num_targets=" + std::to_string(targets_);
  return text;
}

std::vector<TensorSpec> SequenceForm::spec(uint64_t length) const {
  const auto places = static_cast<int64_t>(length);
  std::vector<int64_t> shape{places};
  shape.insert(shape.end(), shape_.begin(), shape_.end());
  const bool is_input = source_ == Source::kNumbers;
  const DType dtype = is_input ? DType::kF32 : source_ == Source::kBytes ? DType::kU8 : DType::kI32;
  std::vector<TensorSpec> spec{
      {.name = is_input ? "input" : "tokens", .dtype = dtype, .shape = std::move(shape)},
      {.name = "length", .dtype = DType::kI64, .shape = {}}};
  const int64_t labels = most_labels_ > 0 ? static_cast<int64_t>(most_labels_) : places;
  if (answer_ == Answer::kLabel)
    spec.push_back({.name = "label", .dtype = DType::kI64, .shape = {}});
  if (answer_ == Answer::kLabels)
    spec.push_back({.name = "labels", .dtype = DType::kI64, .shape = {labels}});
  if (answer_ == Answer::kTarget)
    spec.push_back({.name = "target", .dtype = DType::kF32, .shape = {targets_}});
  return spec;
}

// ---- How long a record is

Result<uint64_t> SequenceForm::length_of(const FieldValue& value) const {
  if (source_ == Source::kBytes) {
    const auto* bytes = std::get_if<FieldBytes>(&value);
    if (bytes == nullptr) return wrong("is " + describe(value) + ", no text");
    return bytes->empty() ? 0 : bytes->size() + (has_end() ? 1 : 0);
  }
  if (source_ == Source::kTokens) {
    STOKER_ASSIGN_OR_RETURN(const FieldInts tokens, whole_numbers(value));
    return tokens.size();
  }
  const auto* floats = std::get_if<FieldFloats>(&value);
  const auto* ints = std::get_if<FieldInts>(&value);
  if (floats == nullptr && ints == nullptr)
    return wrong("is " + describe(value) + ", no list of numbers");
  const uint64_t count = floats != nullptr ? floats->size() : ints->size();
  if (count % numbers_ == 0) return count / numbers_;
  return wrong("has " + std::to_string(count) + " numbers, which are not " +
               std::to_string(numbers_) + " for each place, as input_shape says");
}

Result<SequenceForm::Measure> SequenceForm::measure(std::span<const FieldValue> values) const {
  assert(values.size() == names_.size());
  Measure measure;
  const auto length = length_of(values[0]);
  if (!length) return in_field(0, length.status());
  measure.length = *length;
  if (answer_ != Answer::kLabels) return measure;
  const auto labels = whole_numbers(values[1]);
  if (!labels) return in_field(1, labels.status());
  measure.labels = labels->size();
  for (const int64_t label : *labels) {
    if (label == kPaddedLabel) continue;
    if (label < 0 || label >= static_cast<int64_t>(kMostClasses))
      return in_field(1, wrong("holds " + std::to_string(label) + ", no class (0 to " +
                               std::to_string(kMostClasses - 1) + "), nor -100 for none"));
    measure.classes = std::max(measure.classes, static_cast<uint64_t>(label) + 1);
  }
  if (most_labels_ == 0 && measure.labels != measure.length)
    return in_field(1, wrong("has " + std::to_string(measure.labels) + " labels for the " +
                             std::to_string(measure.length) + " places of " + names_[0] +
                             "; where they are not one each, say how many there may be with "
                             "sequence.max_label_length"));
  return measure;
}

// ---- From values to tensors

Status SequenceForm::to_tensors(std::span<const FieldValue> values, const Known& known,
                                std::span<const std::span<std::byte>> outputs) const {
  assert(values.size() == names_.size());
  assert(outputs.size() == (answer_ == Answer::kNone ? 2 : 3));
  const auto length = length_of(values[0]);
  if (!length) return in_field(0, length.status());
  if (*length != known.length)
    return in_field(0, wrong("has another length than when the file was indexed"));
  const uint64_t own = std::min(*length, longest_);
  STOKER_RETURN_IF_ERROR(in_field(0, to_places(values[0], own, outputs[0])));
  numbers_in<int64_t>(outputs[1])[0] = static_cast<int64_t>(own);
  if (answer_ == Answer::kLabel)
    numbers_in<int64_t>(outputs[2])[0] = static_cast<int64_t>(known.label);
  if (answer_ == Answer::kLabels)
    return in_field(1, to_labels(values[1], own, known.classes, outputs[2]));
  if (answer_ == Answer::kTarget) return to_target(values.subspan(1), outputs[2]);
  return {};
}

Status SequenceForm::to_places(const FieldValue& value, uint64_t own,
                               std::span<std::byte> out) const {
  size_t filled = 0;  // bytes
  if (source_ == Source::kNumbers) {
    const std::span<float> numbers = numbers_in<float>(out);
    assert(own * numbers_ <= numbers.size());
    STOKER_RETURN_IF_ERROR(append_numbers(first_of(value, own * numbers_), numbers, filled));
    filled *= sizeof(float);
  } else if (source_ == Source::kBytes) {
    const FieldBytes text = std::get<FieldBytes>(value);
    filled = std::min<size_t>(own, text.size());  // an end of it is as the padding
    assert(own <= out.size());
    std::memcpy(out.data(), text.data(), filled);
  } else {
    const std::span<int32_t> tokens = numbers_in<int32_t>(out);
    assert(own <= tokens.size());
    for (const int64_t token : std::get<FieldInts>(value).first(own)) {
      if (token < 0 || token > kMostToken)
        return wrong("holds " + std::to_string(token) + ", no token (0 to " +
                     std::to_string(kMostToken) + ")");
      tokens[filled++] = static_cast<int32_t>(token);
    }
    filled *= sizeof(int32_t);
  }
  std::ranges::fill(out.subspan(filled), std::byte{0});
  return {};
}

Status SequenceForm::to_labels(const FieldValue& value, uint64_t own, uint64_t classes,
                               std::span<std::byte> out) const {
  STOKER_ASSIGN_OR_RETURN(FieldInts given, whole_numbers(value));
  const std::span<int64_t> labels = numbers_in<int64_t>(out);
  const bool one_each = most_labels_ == 0;
  if (one_each ? given.size() < own : given.size() > labels.size())
    return wrong("has another number of labels than when the file was indexed");
  if (one_each) given = given.first(own);
  for (const int64_t label : given)
    if (label != kPaddedLabel && (label < 0 || static_cast<uint64_t>(label) >= classes))
      return wrong("holds label " + std::to_string(label) +
                   ", which was not there when the file was indexed");
  std::ranges::copy(given, labels.begin());
  std::ranges::fill(labels.subspan(given.size()), kPaddedLabel);
  return {};
}

Status SequenceForm::to_target(std::span<const FieldValue> values, std::span<std::byte> out) const {
  const std::span<float> numbers = numbers_in<float>(out);
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i)
    STOKER_RETURN_IF_ERROR(in_field(1 + i, append_numbers(values[i], numbers, filled)));
  if (filled == numbers.size()) return {};
  return in_field(values.size(), wrong("ends with number " + std::to_string(filled) + " of the " +
                                       std::to_string(numbers.size()) + " that are needed"));
}

Status SequenceForm::in_field(size_t name, const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(),
                std::string(setting_of(name)) + " '" + names_[name] + "' " + status.message());
}

}  // namespace stoker::dataset
