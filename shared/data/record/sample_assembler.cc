#include "shared/data/record/sample_assembler.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/data/record/class_labels.h"

namespace stoker::data::record {
namespace {

constexpr int64_t kMaxToken = std::numeric_limits<int32_t>::max();
constexpr size_t kNumbersAtOnce = 256;  // elements of an array that are converted on the stack

Status unfit_value(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

// The first of the first `count` integers for which `is_bad` is true.
template <typename IsBad>
std::optional<int64_t> find_number(const FieldValue& value, uint64_t count, const IsBad& is_bad) {
  std::array<int64_t, kNumbersAtOnce> buffer;
  for (uint64_t at = 0; at < count; at += buffer.size()) {
    const FieldInts numbers =
        integers(value, at, std::span(buffer).first(std::min<uint64_t>(buffer.size(), count - at)));
    const auto found = std::ranges::find_if(numbers, is_bad);
    if (found != numbers.end()) return *found;
  }
  return std::nullopt;
}

template <typename T>
std::span<T> numbers_in(std::span<std::byte> out) {
  // The tensors of a slot are aligned for their type (batch_layout.h).
  return {reinterpret_cast<T*>(out.data()), out.size() / sizeof(T)};
}

// The captions of a text: its lines that are not empty.
std::vector<std::string_view> captions_in(std::string_view text) {
  std::vector<std::string_view> captions;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = trimmed(text.substr(begin, end - begin));
    if (!line.empty()) captions.push_back(line);
    begin = end + 1;
  }
  return captions;
}

}  // namespace

// ---- Indexing

Result<InputForm> SampleAssembler::input_form(const FieldValue& input) const {
  if (spec_.is_sequence()) return InputForm::kNumbers;
  if (spec_.image && !is_bytes(input)) {
    return spec_.in_field(0, unfit_value("must be an image, got " + describe(input) +
                                         "; name it in fields.input, with an input_shape"));
  }
  if (spec_.image) return InputForm::kImage;
  return is_bytes(input) ? InputForm::kBytes : InputForm::kNumbers;
}

Result<ChatText> SampleAssembler::chat_text_of(const FieldValue& value,
                                               Normalization normalization) const {
  const auto* const encoded = std::get_if<FieldBytes>(&value);
  if (encoded == nullptr) return unfit_value("must be a list of messages, got " + describe(value));
  STOKER_ASSIGN_OR_RETURN(auto messages, read_messages(*encoded));
  std::deque<std::string> normalized;  // so that the bytes of the tokens are those of the text
  if (normalization == Normalization::kOfTokenizer)
    for (ChatMessage& message : messages)
      for (std::string_view* const text : {&message.role, &message.content}) {
        STOKER_ASSIGN_OR_RETURN(normalized.emplace_back(), spec_.tokenizer->normalized(*text));
        *text = normalized.back();
      }
  return apply_chat_template(spec_.chat_template, messages);
}

Result<SampleAssembler::Tokens> SampleAssembler::tokens_of(const FieldValue& value) const {
  const auto* const text = std::get_if<FieldBytes>(&value);
  if (text == nullptr) return unfit_value("must be text, got " + describe(value));
  // An encoder keeps its buffers, so there is one per thread. It is replaced when the thread reads
  // another dataset.
  struct Mine {
    std::optional<tokenizer::TextEncoder> encoder;
    std::vector<int32_t> ids;
    ChatText chat;
  };
  thread_local Mine mine;
  if (!mine.encoder || &mine.encoder->tokenizer() != spec_.tokenizer.get())
    mine.encoder.emplace(spec_.tokenizer);
  const tokenizer::TextTemplate& around = spec_.text_template();
  mine.ids = around.before;
  mine.chat.replies.clear();
  if (text->empty() && around.size() == 0) return Tokens();
  std::string_view encoded = to_string_view(*text);
  if (spec_.has_messages()) {
    STOKER_ASSIGN_OR_RETURN(mine.chat, chat_text_of(value, Normalization::kOfTokenizer));
    encoded = mine.chat.text;
  }
  STOKER_RETURN_IF_ERROR(mine.encoder->encode(encoded, mine.ids));
  mine.ids.insert(mine.ids.end(), around.after.begin(), around.after.end());
  if (spec_.has_end_token() && spec_.tokenizer->end_token())
    mine.ids.push_back(*spec_.tokenizer->end_token());
  if (spec_.has_messages()) {
    size_t bytes = 0;
    for (const int32_t id : mine.ids) bytes += spec_.tokenizer->bytes_of(id).size();
    if (bytes != encoded.size())
      return unfit_value("has characters that the tokenizer replaces, so its tokens have no place");
  }
  return Tokens{.ids = mine.ids, .replies = mine.chat.replies};
}

Result<uint64_t> SampleAssembler::num_steps(const FieldValue& value) const {
  if (spec_.input().role == FieldRole::kText) {
    const auto* bytes = std::get_if<FieldBytes>(&value);
    if (bytes == nullptr) return unfit_value("must be text, got " + describe(value));
    return bytes->empty() ? 0 : bytes->size() + (spec_.has_end_token() ? 1 : 0);
  }
  if (spec_.input().role == FieldRole::kInputIds) return integer_count(value);
  const auto count = number_count(value);
  if (!count) return unfit_value("must be a list of numbers, got " + describe(value));
  const uint64_t per_step = spec_.values_per_step();
  if (*count % per_step == 0) return *count / per_step;
  return unfit_value("has " + std::to_string(*count) + " numbers, which is not a multiple of the " +
                     std::to_string(per_step) + " of a time step (input_shape)");
}

bool SampleAssembler::have_reply(std::span<const int32_t> ids,
                                 std::span<const ChatText::Range> replies) const {
  if (replies.empty()) return false;
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += spec_.tokenizer->bytes_of(id).size();
  return bytes > replies.front().begin;
}

Status SampleAssembler::measure_text(const FieldValue& value, TextTokenizer* maybe_tokenizer,
                                     Measure& measure) const {
  const auto kept = [this](std::span<const int32_t> ids) {
    return ids.first(std::min<uint64_t>(ids.size(), spec_.max_length));
  };
  if (maybe_tokenizer == nullptr) {
    STOKER_ASSIGN_OR_RETURN(const Tokens tokens, tokens_of(value));
    measure.length = tokens.ids.size();
    if (spec_.has_messages()) measure.has_reply = have_reply(kept(tokens.ids), tokens.replies);
    return {};
  }
  const auto* const text = std::get_if<FieldBytes>(&value);
  if (text == nullptr) return unfit_value("must be text, got " + describe(value));
  const bool has_end = spec_.has_end_token() && spec_.tokenizer->end_token();
  const size_t around = spec_.text_template().size();
  if (text->empty()) {
    measure.length = around == 0 ? 0 : around + (has_end ? 1 : 0);
    return {};
  }
  ChatText chat;
  std::string_view encoded = to_string_view(*text);
  if (spec_.has_messages()) {
    // Only the worker process normalizes what is not trusted. Without, the place of the first reply
    // in a long text is an estimate.
    STOKER_ASSIGN_OR_RETURN(chat, chat_text_of(value, Normalization::kNone));
    encoded = chat.text;
  }
  STOKER_ASSIGN_OR_RETURN(
      const TextTokenizer::Part part,
      maybe_tokenizer->tokenize(encoded, /*begins_section=*/true, /*ends_text=*/true));
  if (part.bytes != encoded.size())
    return Status(StatusCode::kCorrupt, "its worker process sent an impossible result");
  measure.length = around + part.ids.size() + (has_end ? 1 : 0);
  if (spec_.has_messages())
    measure.has_reply = part.ids.size() <= spec_.max_length
                            ? !chat.replies.empty()
                            : have_reply(kept(part.ids), chat.replies);
  return {};
}

std::optional<SampleAssembler::Excess> SampleAssembler::find_excess(const Measure& measure) const {
  if (spec_.max_label_length > 0 && measure.labels > spec_.max_label_length)
    return Excess{.what = "has " + std::to_string(measure.labels) + " labels",
                  .key = "sequence.max_label_length",
                  .limit = spec_.max_label_length};
  if (measure.length <= spec_.max_length) return std::nullopt;
  return Excess{.what = "has " + std::to_string(measure.length) + " time steps",
                .key = "sequence.max_length",
                .limit = spec_.max_length,
                .is_of_steps = true};
}

Result<SampleAssembler::Measure> SampleAssembler::measure(std::span<const FieldValue> values,
                                                          TextTokenizer* maybe_tokenizer) const {
  assert(values.size() == spec_.num_values());
  Measure measure;
  if (spec_.tokenizer) {
    STOKER_RETURN_IF_ERROR(spec_.in_field(0, measure_text(values[0], maybe_tokenizer, measure)));
  } else {
    const auto length = num_steps(values[0]);
    if (!length) return spec_.in_field(0, length.status());
    measure.length = *length;
  }
  if (!spec_.has_target(FieldRole::kLabels)) return measure;
  const auto labels = integer_count(values[1]);
  if (!labels) return spec_.in_field(1, labels.status());
  measure.labels = *labels;
  const auto bad = find_number(values[1], measure.labels, [&measure](int64_t label) {
    if (label == kPaddedLabel) return false;
    if (label < 0 || label >= static_cast<int64_t>(kMaxClasses)) return true;
    measure.classes = std::max(measure.classes, static_cast<uint64_t>(label) + 1);
    return false;
  });
  if (bad)
    return spec_.in_field(
        1, unfit_value("must be classes from 0 to " + std::to_string(kMaxClasses - 1) +
                       ", or -100 (ignored), got " + std::to_string(*bad)));
  if (spec_.max_label_length == 0 && measure.labels != measure.length)
    return spec_.in_field(
        1, unfit_value("has " + std::to_string(measure.labels) + " labels for the " +
                       std::to_string(measure.length) + " time steps of " + spec_.names[0] +
                       "; for another number of labels set sequence.max_label_length"));
  return measure;
}

// ---- Samples

Status SampleAssembler::assemble(const RecordValues& record, const RandomKey& random_key,
                                 std::span<const std::span<std::byte>> outputs) const {
  assert(!spec_.is_text() && record.fields.size() == spec_.num_values());
  assert(outputs.size() == spec_.first_other_tensor() + spec_.others().size());
  const size_t inputs = spec_.input().num_values;
  uint64_t steps = 0;
  if (spec_.is_sequence()) {
    STOKER_RETURN_IF_ERROR(write_sequence(record, steps, outputs));
  } else if (spec_.has_mask()) {
    STOKER_RETURN_IF_ERROR(write_image_with_mask(record, random_key, outputs));
  } else {
    STOKER_RETURN_IF_ERROR(write_input(record.fields.first(inputs), random_key, outputs[0]));
  }
  STOKER_RETURN_IF_ERROR(write_target(record, steps, outputs));
  const size_t others = spec_.others().size(), first = record.fields.size() - others;
  for (size_t i = 0; i < others; ++i)
    STOKER_RETURN_IF_ERROR(write_other(record.fields.subspan(first + i, 1), first + i,
                                       outputs[spec_.first_other_tensor() + i]));
  return {};
}

Status SampleAssembler::write_other(std::span<const FieldValue> value, size_t first,
                                    std::span<std::byte> out) const {
  const FieldSpec& field = spec_.field_of(first);
  if (field.padding) return spec_.in_field(first, write_padded(value[0], field, out));
  if (field.dtype != DType::kI64) return write_numbers(value, first, out);
  const auto given = integer_count(value[0]);
  if (!given) return spec_.in_field(first, given.status());
  const std::span<int64_t> numbers = numbers_in<int64_t>(out);
  if (*given != numbers.size())
    return spec_.in_field(first, unfit_value("has " + std::to_string(*given) + " of the required " +
                                             std::to_string(numbers.size()) + " integers"));
  copy_integers(value[0], numbers);
  return {};
}

Status SampleAssembler::write_padded(const FieldValue& value, const FieldSpec& field,
                                     std::span<std::byte> out) const {
  const auto count = number_count(value);
  if (!count) return unfit_value("must be a list of numbers, got " + record::describe(value));
  const auto max_length = static_cast<uint64_t>(field.shape.front());
  const uint64_t per_element = static_cast<uint64_t>(field.elements()) / max_length;
  if (*count % per_element != 0)
    return unfit_value("has " + std::to_string(*count) +
                       " numbers, which is not a multiple of the " + std::to_string(per_element) +
                       " of an element (shape)");
  if (*count / per_element > max_length)
    return unfit_value("has " + std::to_string(*count / per_element) +
                       " elements, more than max_length (" + std::to_string(max_length) + ")");
  if (field.dtype == DType::kI64) {
    STOKER_RETURN_IF_ERROR(integer_count(value).status());
    const std::span<int64_t> numbers = numbers_in<int64_t>(out);
    copy_integers(value, numbers.first(*count));
    std::ranges::fill(numbers.subspan(*count), *field.padding);
    return {};
  }
  const std::span<float> numbers = numbers_in<float>(out);
  size_t filled = 0;
  STOKER_RETURN_IF_ERROR(append_numbers(value, numbers, filled));
  std::ranges::fill(numbers.subspan(filled), static_cast<float>(*field.padding));
  return {};
}

Status SampleAssembler::write_target(const RecordValues& record, uint64_t steps,
                                     std::span<const std::span<std::byte>> outputs) const {
  const size_t inputs = spec_.input().num_values;
  const FieldSpec* const target = spec_.maybe_target();
  if (target == nullptr || target->role == FieldRole::kMask) return {};
  const std::span<std::byte> out = outputs[spec_.target_tensor()];
  if (target->role == FieldRole::kCaption)
    return spec_.in_field(inputs, write_captions(record.fields[inputs], outputs[1], outputs[2]));
  if (target->role == FieldRole::kTarget)
    return write_numbers(record.fields.subspan(inputs, target->num_values), inputs, out);
  if (target->role == FieldRole::kLabels) {
    STOKER_RETURN_IF_ERROR(spec_.in_field(inputs, write_labels(record.fields[inputs], steps, out)));
    if (spec_.tokenizer && spec_.max_label_length == 0 && steps < record.length) {
      // The tokens that end a truncated text have the places of others.
      const size_t added = spec_.text_template().after.size();
      std::ranges::fill(numbers_in<int64_t>(out).subspan(steps - added, added), kPaddedLabel);
    }
    return {};
  }
  const auto label = static_cast<int64_t>(record.label);
  std::memcpy(out.data(), &label, sizeof label);
  return {};
}

std::string SampleAssembler::describe_transforms(std::span<const FieldValue> values,
                                                 const RandomKey& random_key) const {
  const auto* file = spec_.image ? std::get_if<FieldBytes>(&values[0]) : nullptr;
  return file == nullptr ? std::string() : spec_.image->describe_transforms(*file, random_key);
}

Status SampleAssembler::write_image_with_mask(const RecordValues& record,
                                              const RandomKey& random_key,
                                              std::span<const std::span<std::byte>> outputs) const {
  const auto* const image = std::get_if<FieldBytes>(&record.fields[0]);
  const auto* const mask = std::get_if<FieldBytes>(&record.fields[1]);
  for (const size_t value : {size_t{0}, size_t{1}})
    if (!is_bytes(record.fields[value]))
      return spec_.in_field(
          value, unfit_value("must be an image, got " + record::describe(record.fields[value])));
  return spec_.in_field(0, spec_.image->read_with_mask(*image, *mask, spec_.num_classes, random_key,
                                                       outputs[0], outputs[1]));
}

Status SampleAssembler::write_input(std::span<const FieldValue> values, const RandomKey& random_key,
                                    std::span<std::byte> out) const {
  if (!spec_.image)
    return spec_.input().dtype == DType::kU8 ? write_bytes(values, out)
                                             : write_numbers(values, 0, out);
  const auto* file = std::get_if<FieldBytes>(&values[0]);
  if (file == nullptr)
    return spec_.in_field(0, unfit_value("must be an image, got " + record::describe(values[0])));
  return spec_.in_field(0, spec_.image->read(*file, random_key, out));
}

Status SampleAssembler::write_bytes(std::span<const FieldValue> values,
                                    std::span<std::byte> out) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bytes = byte_count(values[i]);
    const bool is_last = i + 1 == values.size();
    const size_t wanted = is_last || !bytes ? out.size() : std::min(*bytes, out.size());
    const Status status = copy_bytes(values[i], out.first(wanted));
    if (!status.ok()) return spec_.in_field(i, status);
    out = out.subspan(wanted);
  }
  return {};
}

Status SampleAssembler::write_numbers(std::span<const FieldValue> values, size_t first,
                                      std::span<std::byte> out) const {
  const std::span<float> numbers = numbers_in<float>(out);
  size_t filled = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Status status = append_numbers(values[i], numbers, filled);
    if (!status.ok()) return spec_.in_field(first + i, status);
  }
  if (filled == numbers.size()) return {};
  return spec_.in_field(
      first + values.size() - 1,
      unfit_value("is too short: " + std::to_string(filled) + " of the required " +
                  std::to_string(numbers.size()) + " numbers"));
}

// Sets `kept` to the number of steps of the sample, after truncation.
Status SampleAssembler::write_sequence(const RecordValues& record, uint64_t& kept,
                                       std::span<const std::span<std::byte>> outputs) const {
  const auto changed = [] {
    return unfit_value("has a different length than when the file was indexed");
  };
  kept = std::min(record.length, spec_.max_length);
  if (spec_.tokenizer) {
    const auto tokens = tokens_of(record.fields[0]);
    if (!tokens) return spec_.in_field(0, tokens.status());
    if (tokens->ids.size() != record.length) return spec_.in_field(0, changed());
    const auto copy = [&](std::span<const int32_t> ids, size_t first) {
      std::ranges::copy(std::as_bytes(ids), outputs[0].subspan(first * sizeof(int32_t)).begin());
    };
    copy(tokens->ids.first(kept), 0);
    // A truncated text ends as a complete one.
    const std::vector<int32_t>& after = spec_.text_template().after;
    if (kept < tokens->ids.size()) copy(after, kept - after.size());
    fill_padding(outputs[0].subspan(kept * sizeof(int32_t)), false);
    if (spec_.has_messages()) write_replies(*tokens, kept, outputs[2]);
  } else {
    const auto length = num_steps(record.fields[0]);
    if (!length) return spec_.in_field(0, length.status());
    if (*length != record.length) return spec_.in_field(0, changed());
    STOKER_RETURN_IF_ERROR(spec_.in_field(0, write_steps(record.fields[0], kept, outputs[0])));
  }
  numbers_in<int64_t>(outputs[1])[0] = static_cast<int64_t>(kept);
  return {};
}

// A token belongs to a reply if one of its bytes does, as in transformers.
void SampleAssembler::write_replies(const Tokens& tokens, uint64_t kept,
                                    std::span<std::byte> labels) const {
  fill_padding(labels, true);
  const std::span<int64_t> out = numbers_in<int64_t>(labels);
  size_t begin = 0;
  auto reply = tokens.replies.begin();
  for (size_t i = 0; i < kept; ++i) {
    const size_t end = begin + spec_.tokenizer->bytes_of(tokens.ids[i]).size();
    while (reply != tokens.replies.end() && reply->end <= begin) ++reply;
    if (reply == tokens.replies.end()) break;
    if (end > reply->begin) out[i] = tokens.ids[i];
    begin = end;
  }
}

Status SampleAssembler::write_steps(const FieldValue& value, uint64_t kept,
                                    std::span<std::byte> out) const {
  size_t filled = 0;
  if (spec_.input().role == FieldRole::kInput) {
    const std::span<float> numbers = numbers_in<float>(out);
    const uint64_t count = kept * spec_.values_per_step();
    assert(count <= numbers.size());
    STOKER_RETURN_IF_ERROR(append_numbers(first_numbers(value, count), numbers, filled));
    filled *= sizeof(float);
  } else if (spec_.input().role == FieldRole::kText) {
    const FieldBytes text = std::get<FieldBytes>(value);
    filled = std::min<size_t>(kept, text.size());  // the end token is a byte 0, like the padding
    assert(kept <= out.size());
    std::memcpy(out.data(), text.data(), filled);
  } else {
    const std::span<int32_t> tokens = numbers_in<int32_t>(out);
    assert(kept <= tokens.size());
    const auto bad = find_number(value, kept, [&](int64_t token) {
      if (token < 0 || token > kMaxToken) return true;
      tokens[filled++] = static_cast<int32_t>(token);
      return false;
    });
    if (bad)
      return unfit_value("must be tokens from 0 to " + std::to_string(kMaxToken) + ", got " +
                         std::to_string(*bad));
    filled *= sizeof(int32_t);
  }
  fill_padding(out.subspan(filled), false);
  return {};
}

Status SampleAssembler::write_captions(const FieldValue& value, std::span<std::byte> labels,
                                       std::span<std::byte> references) const {
  const auto* const text = std::get_if<FieldBytes>(&value);
  if (text == nullptr) return unfit_value("must be text, got " + record::describe(value));
  const std::vector<std::string_view> captions = captions_in(to_string_view(*text));
  if (captions.empty()) return unfit_value("has no text");
  // The references end at the first one.
  if (std::ranges::find(*text, std::byte{0}) != text->end())
    return unfit_value("contains a zero byte");
  std::string all;
  for (const std::string_view caption : captions) (all += all.empty() ? "" : "\n").append(caption);
  if (all.size() > references.size())
    return unfit_value("has captions of " + std::to_string(all.size()) +
                       " bytes, more than the limit of " + std::to_string(references.size()));
  std::memcpy(references.data(), all.data(), all.size());
  std::ranges::fill(references.subspan(all.size()), std::byte{0});
  const std::span<int64_t> rows = numbers_in<int64_t>(labels);
  std::ranges::fill(rows, kPaddedLabel);
  const size_t length = spec_.max_label_length;
  for (size_t i = 0; i < std::min(captions.size(), rows.size() / length); ++i) {
    std::vector<int64_t> tokens = spec_.vocabulary->encode(captions[i]);
    if (tokens.size() > length) {
      if (!spec_.truncates_captions)
        return unfit_value(
            "has a caption of " + std::to_string(tokens.size() - 1) +
            " words, more than sequence.max_label_length (" + std::to_string(length) +
            ") allows with its end; raise it, or set sequence.on_overflow: truncate");
      tokens.resize(length);
      tokens.back() = kCaptionEnd;
    }
    std::ranges::copy(tokens, rows.begin() + static_cast<std::ptrdiff_t>(i * length));
  }
  return {};
}

Status SampleAssembler::write_labels(const FieldValue& value, uint64_t steps,
                                     std::span<std::byte> out) const {
  STOKER_ASSIGN_OR_RETURN(const uint64_t given, integer_count(value));
  const std::span<int64_t> labels = numbers_in<int64_t>(out);
  const bool is_per_step = spec_.max_label_length == 0;
  if (is_per_step ? given < steps : given > labels.size())
    return unfit_value("has a different number of labels than when the file was indexed");
  const auto kept = labels.first(is_per_step ? steps : given);
  copy_integers(first_numbers(value, kept.size()), kept);
  const auto is_bad = [classes = static_cast<int64_t>(spec_.num_classes)](int64_t label) {
    return label != kPaddedLabel && (label < 0 || label >= classes);
  };
  const auto bad = std::ranges::find_if(kept, is_bad);
  if (bad != kept.end())
    return unfit_value("has label " + std::to_string(*bad) +
                       ", which did not exist when the file was indexed");
  fill_padding(out.subspan(kept.size_bytes()), true);
  return {};
}

}  // namespace stoker::data::record
