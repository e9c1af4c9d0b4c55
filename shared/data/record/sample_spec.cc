#include "shared/data/record/sample_spec.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <span>

#include "shared/base/tensor_role.h"
#include "shared/data/record/chat_messages.h"

namespace stoker::data::record {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 30;  // per sample; 4 GiB as F32

// The number of elements of a shape; 0 if the shape is invalid or too large.
int64_t checked_elements(const std::vector<int64_t>& shape) {
  int64_t elements = shape.empty() ? 0 : 1;
  for (const int64_t side : shape) {
    if (side < 1 || side > kMaxElements / std::max<int64_t>(elements, 1)) return 0;
    elements *= side;
  }
  return elements;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t side : shape) text += (text.empty() ? "" : "x") + std::to_string(side);
  return text;
}

// The length prefix makes the texts of different lists differ, whatever the names contain.
std::string name_text(const std::string& name) { return std::to_string(name.size()) + ':' + name; }

std::string list_text(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name_text(name);
  return text;
}

bool has_empty(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) { return name.empty(); });
}

void add_field(SampleSpec& spec, FieldSpec field, const std::vector<std::string>& names) {
  field.num_values = names.size();
  spec.names.insert(spec.names.end(), names.begin(), names.end());
  spec.fields.push_back(std::move(field));
}

FieldSpec label_field() { return {.role = FieldRole::kLabel, .dtype = DType::kI64, .shape = {}}; }

Status add_target_numbers(const DatasetRequest& request, SampleSpec& spec) {
  STOKER_ASSIGN_OR_RETURN(const int64_t targets, targets_of(request));
  add_field(spec, {.role = FieldRole::kTarget, .shape = {targets}},
            request.config.record()->fields.target);
  return {};
}

// ---- Records of one shape

Status add_input(const DatasetRequest& request, SampleSpec& spec) {
  const config::RecordConfig& record = *request.config.record();
  if (record.fields.input.empty() || has_empty(record.fields.input))
    return request.config_error(
        "fields.input",
        "is required; set it to the name of the input, or set fields.image or "
        "fields.text");
  if (record.input_shape.empty())
    return request.config_error("input_shape", "is required for fields.input");
  if (checked_elements(record.input_shape) == 0)
    return request.config_error(
        "input_shape",
        "must be positive numbers whose product is at most " + std::to_string(kMaxElements));
  add_field(spec, {.role = FieldRole::kInput, .shape = record.input_shape}, record.fields.input);
  return {};
}

Status add_image(const DatasetRequest& request, SampleSpec& spec) {
  const config::RecordConfig& record = *request.config.record();
  if (!record.fields.input.empty())
    return request.config_error("fields.image", "cannot be combined with fields.input");
  if (!record.input_shape.empty())
    return request.config_error("input_shape", "cannot be combined with fields.image");
  STOKER_ASSIGN_OR_RETURN(spec.image, transform::ImageDecoderInput::of(request));
  add_field(spec,
            {.role = FieldRole::kImage, .dtype = DType::kU8, .shape = spec.image->spec().shape},
            {record.fields.image});
  return {};
}

Status add_mask(const DatasetRequest& request, SampleSpec& spec) {
  const config::RecordConfig& record = *request.config.record();
  if (!spec.image || !record.fields.label.empty() || !record.fields.target.empty())
    return request.config_error("fields.mask",
                                "requires fields.image, and cannot be combined with label and "
                                "target");
  constexpr uint64_t kMaxMaskClasses = 255;
  spec.num_classes = static_cast<uint64_t>(record.num_classes.value_or(0));
  if (spec.num_classes == 0 || spec.num_classes > kMaxMaskClasses)
    return request.config_error("num_classes", "must be from 1 to 255 with fields.mask");
  add_field(spec,
            {.role = FieldRole::kMask, .dtype = DType::kU8, .shape = spec.image->mask_spec().shape},
            {record.fields.mask});
  return {};
}

Status add_target(const DatasetRequest& request, SampleSpec& spec) {
  const config::FieldNames& names = request.config.record()->fields;
  if (!names.mask.empty()) return add_mask(request, spec);
  if (names.label.empty() && names.target.empty()) return {};
  if (!names.label.empty()) {
    if (!names.target.empty())
      return request.config_error("fields.label", "cannot be combined with fields.target");
    add_field(spec, label_field(), {names.label});
    return {};
  }
  if (has_empty(names.target))
    return request.config_error("fields.target", "must not contain an empty name");
  return add_target_numbers(request, spec);
}

Status add_others(const DatasetRequest& request, SampleSpec& spec) {
  for (const std::string& name : request.config.record()->fields.others) {
    if (name.empty())
      return request.config_error("fields.others", "must not contain an empty name");
    add_field(spec, {.role = FieldRole::kOther, .shape = {}, .name = name}, {name});
  }
  for (const config::ListConfig& list : request.config.record()->fields.lists) {
    FieldSpec field{.role = FieldRole::kList,
                    .dtype = list.dtype == config::NumberList::kInt64 ? DType::kI64 : DType::kF32,
                    .shape = list.shape,
                    .name = list.name};
    if (list.max_length) {
      field.shape.insert(field.shape.begin(), *list.max_length);
      field.padding = list.padding_value;
    }
    if (list.name.empty())
      return request.config_error("fields.lists", "must not contain an empty name");
    if (checked_elements(field.shape) == 0)
      return request.config_error("fields.lists", "'" + list.name + "' must have at most " +
                                                      std::to_string(kMaxElements) + " elements");
    add_field(spec, std::move(field), {list.field.empty() ? list.name : list.field});
  }
  return {};
}

Result<SampleSpec> caption_spec(const DatasetRequest& request) {
  const config::FieldNames& names = request.config.record()->fields;
  STOKER_ASSIGN_OR_RETURN(const auto image, transform::ImageDecoderInput::of(request));
  STOKER_ASSIGN_OR_RETURN(SampleSpec spec, SampleSpec::captioned(request, image));
  spec.names = {names.image, names.caption};
  return spec;
}

Result<SampleSpec> record_spec(const DatasetRequest& request) {
  const config::FieldNames& names = request.config.record()->fields;
  if (!names.caption.empty()) return caption_spec(request);
  SampleSpec spec;
  if (!names.text.empty()) {
    if (!names.image.empty() || !names.input.empty() || !names.label.empty() ||
        !names.target.empty())
      return request.config_error("fields.text",
                                  "cannot be combined with image, input, label and target");
    add_field(spec, {.role = FieldRole::kText, .dtype = DType::kU8, .shape = {}}, {names.text});
    return spec;
  }
  STOKER_RETURN_IF_ERROR(names.image.empty() ? add_input(request, spec) : add_image(request, spec));
  STOKER_RETURN_IF_ERROR(add_target(request, spec));
  STOKER_RETURN_IF_ERROR(add_others(request, spec));
  return spec;
}

// ---- Sequences

Status add_steps(const DatasetRequest& request, SampleSpec& spec) {
  const config::RecordConfig& record = *request.config.record();
  const config::FieldNames& fields = record.fields;
  if (!fields.image.empty())
    return request.config_error("fields.image", "cannot be combined with sequence.max_length");
  const size_t sources = fields.input.size() + (fields.text.empty() ? 0 : 1) +
                         (fields.messages.empty() ? 0 : 1) + (fields.input_ids.empty() ? 0 : 1);
  if (sources != 1)
    return request.config_error("fields.input",
                                "must be one field for sequences; or set fields.text, "
                                "fields.messages or fields.input_ids");
  FieldSpec steps{.role = FieldRole::kInput, .shape = {}};
  if (!fields.text.empty()) {
    steps.role = FieldRole::kText;
    steps.dtype = spec.tokenizer ? DType::kI32 : DType::kU8;
  } else if (!fields.messages.empty()) {
    steps.role = FieldRole::kMessages;
    steps.dtype = DType::kI32;
  } else if (!fields.input_ids.empty()) {
    steps.role = FieldRole::kInputIds;
    steps.dtype = DType::kI32;
  } else {
    steps.shape = record.input_shape.empty() ? std::vector<int64_t>{1} : record.input_shape;
  }
  auto room = static_cast<uint64_t>(kMaxElements) / spec.max_length;
  for (const int64_t side : steps.shape) {
    if (side < 1 || static_cast<uint64_t>(side) > room)
      return request.config_error(
          "input_shape",
          "must be positive numbers whose product, times sequence.max_length, is at "
          "most " +
              std::to_string(kMaxElements));
    room /= static_cast<uint64_t>(side);
  }
  add_field(spec, std::move(steps),
            {!fields.text.empty()        ? fields.text
             : !fields.messages.empty()  ? fields.messages
             : !fields.input_ids.empty() ? fields.input_ids
                                         : fields.input.front()});
  return {};
}

Status add_sequence_target(const DatasetRequest& request, SampleSpec& spec) {
  const config::RecordConfig& record = *request.config.record();
  const config::FieldNames& fields = record.fields;
  const int targets = (fields.label.empty() ? 0 : 1) + (fields.labels.empty() ? 0 : 1) +
                      (fields.target.empty() ? 0 : 1);
  if (targets > 1)
    return request.config_error("fields.label", "cannot be combined with labels and target");
  if (!fields.label.empty()) {
    add_field(spec, label_field(), {fields.label});
  } else if (!fields.labels.empty()) {
    spec.max_label_length = static_cast<uint64_t>(record.sequence.max_label_length.value_or(0));
    FieldSpec labels{.role = FieldRole::kLabels, .dtype = DType::kI64, .shape = {}};
    if (spec.max_label_length > 0) labels.shape = {static_cast<int64_t>(spec.max_label_length)};
    add_field(spec, std::move(labels), {fields.labels});
  } else if (!fields.target.empty()) {
    return add_target_numbers(request, spec);
  }
  return {};
}

// Checks that the tokenizer was made for the template: with others, its special tokens would be many
// tokens of text.
Status set_chat_template(const DatasetRequest& request, const config::TokenizerConfig& config,
                         SampleSpec& spec) {
  if (!config.chat_template)
    return request.config_error("tokenizer.chat_template", "is required with fields.messages");
  spec.chat_template = *config.chat_template;
  if (!spec.tokenizer->is_lossless())
    return request.config_error("tokenizer.path",
                                "must be a byte-level tokenizer.json with fields.messages");
  tokenizer::TextEncoder encoder(spec.tokenizer);
  for (const std::string_view token : special_tokens(spec.chat_template)) {
    std::vector<int32_t> ids;
    STOKER_RETURN_IF_ERROR(encoder.encode(token, ids));
    if (ids.size() != 1)
      return request.config_error("tokenizer.chat_template",
                                  std::string(config::to_string(spec.chat_template)) +
                                      " needs the token " + std::string(token) + ", which " +
                                      config.path + " does not have; set another one");
  }
  return {};
}

Result<SampleSpec> sequence_spec(const DatasetRequest& request) {
  SampleSpec spec;
  const int64_t max_length = request.config.sequence()->max_length.value_or(0);
  if (max_length < 1) return request.config_error("sequence.max_length", "must be at least 1");
  spec.max_length = static_cast<uint64_t>(max_length);
  if (const config::TokenizerConfig* const tokenizer = request.config.text_tokenizer()) {
    auto read = tokenizer::Tokenizer::read(tokenizer->path);
    if (!read) return read.status().with_context(request.key("tokenizer.path"));
    spec.tokenizer = *std::move(read);
    if (request.config.has_messages())
      STOKER_RETURN_IF_ERROR(set_chat_template(request, *tokenizer, spec));
    const size_t added = request.config.has_messages() ? 0 : spec.tokenizer->text_template().size();
    if (spec.max_length <= added && added > 0)
      return request.config_error("sequence.max_length",
                                  "must be above " + std::to_string(added) +
                                      ", the tokens that the tokenizer adds to each text");
  }
  if (request.config.has_messages() && spec.tokenizer == nullptr)
    return request.config_error("tokenizer", "is required with fields.messages");
  STOKER_RETURN_IF_ERROR(add_steps(request, spec));
  STOKER_RETURN_IF_ERROR(add_sequence_target(request, spec));
  STOKER_RETURN_IF_ERROR(add_others(request, spec));
  return spec;
}

TensorRole tensor_role(FieldRole role) {
  switch (role) {
    case FieldRole::kImage:
    case FieldRole::kInput:
      return TensorRole::kInput;
    case FieldRole::kText:
    case FieldRole::kMessages:
    case FieldRole::kInputIds:
      return TensorRole::kTokens;
    case FieldRole::kLabel:
      return TensorRole::kLabel;
    case FieldRole::kLabels:
    case FieldRole::kCaption:
      return TensorRole::kLabels;
    case FieldRole::kMask:
      return TensorRole::kMask;
    case FieldRole::kTarget:
      return TensorRole::kTarget;
    case FieldRole::kOther:
    case FieldRole::kList:
    case FieldRole::kPriority:
    case FieldRole::kGroup:
      break;
  }
  assert(false && "such a value is no tensor of a role");
  return TensorRole::kInput;
}

TensorSpec tensor_of(const SampleSpec& spec, const FieldSpec& field, uint64_t length) {
  TensorSpec tensor{.name = field.is_other() ? field.name : tensor_name(tensor_role(field.role)),
                    .dtype = field.dtype,
                    .shape = {}};
  if (spec.is_per_step(field)) tensor.shape.push_back(static_cast<int64_t>(length));
  tensor.shape.insert(tensor.shape.end(), field.shape.begin(), field.shape.end());
  return tensor;
}

// The names of the lists are in another place.
std::string lists_text(const SampleSpec& spec) {
  std::string text;
  for (const FieldSpec& field : spec.others()) {
    if (field.role != FieldRole::kList) continue;
    text += " list=" + std::string(to_string(field.dtype)) + ':' + shape_text(field.shape);
    if (field.padding) text += ":padding=" + std::to_string(*field.padding);
  }
  return text;
}

std::string sequence_text(const SampleSpec& spec) {
  std::string text = "max_length=" + std::to_string(spec.max_length);
  for (size_t i = 0; i < spec.names.size(); ++i)
    text += ' ' + std::string(to_string(spec.role_of(i))) + '=' + name_text(spec.names[i]);
  if (!spec.input().shape.empty()) text += " input_shape=" + shape_text(spec.input().shape);
  if (spec.max_label_length > 0)
    text += " max_label_length=" + std::to_string(spec.max_label_length);
  if (spec.has_target(FieldRole::kTarget))
    text += " num_targets=" + std::to_string(spec.fields[1].elements());
  if (spec.tokenizer) text += " tokenizer=" + spec.tokenizer->digest();
  if (spec.has_messages())
    text += " chat_template=" + std::string(config::to_string(spec.chat_template));
  return text + lists_text(spec);
}

}  // namespace

void fill_padding(std::span<std::byte> padding, bool is_labels) {
  if (!is_labels) {
    std::ranges::fill(padding, std::byte{0});
    return;
  }
  assert(padding.size() % sizeof kPaddedLabel == 0);
  for (; !padding.empty(); padding = padding.subspan(sizeof kPaddedLabel))
    std::memcpy(padding.data(), &kPaddedLabel, sizeof kPaddedLabel);
}

std::string_view to_string(FieldRole role) {
  switch (role) {
    case FieldRole::kImage:
      return "image";
    case FieldRole::kInput:
      return "input";
    case FieldRole::kText:
      return "text";
    case FieldRole::kMessages:
      return "messages";
    case FieldRole::kInputIds:
      return "input_ids";
    case FieldRole::kLabel:
      return "label";
    case FieldRole::kLabels:
      return "labels";
    case FieldRole::kMask:
      return "mask";
    case FieldRole::kTarget:
      return "target";
    case FieldRole::kCaption:
      return "caption";
    case FieldRole::kOther:
      return "others";
    case FieldRole::kList:
      return "lists";
    case FieldRole::kPriority:
      return "priority";
    case FieldRole::kGroup:
      return "group";
  }
  return "";
}

Result<int64_t> targets_of(const DatasetRequest& request) {
  const config::RecordConfig& record = *request.config.record();
  const auto names = static_cast<int64_t>(record.fields.target.size());
  const int64_t targets = record.num_targets.value_or(names);
  if (targets >= names && targets >= 1 && targets <= kMaxElements) return targets;
  return request.config_error("num_targets",
                              "must be at least 1, and at least the number of names in " +
                                  request.key("fields.target") + ", " + std::to_string(names));
}

int64_t FieldSpec::elements() const {
  int64_t elements = 1;
  for (const int64_t side : shape) elements *= side;
  return elements;
}

Result<SampleSpec> SampleSpec::of(const DatasetRequest& request) {
  return request.config.has_variable_length() ? sequence_spec(request) : record_spec(request);
}

Result<SampleSpec> SampleSpec::for_index(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(SampleSpec spec, of(request));
  const bool is_by_group =
      request.config.splits_samples() && request.config.split_by == config::SplitBy::kGroup;
  const std::string& group = request.config.fields()->group;
  if (!is_by_group || group.empty()) return spec;
  spec.names.push_back(group);
  spec.has_group = true;
  return spec;
}

SampleSpec SampleSpec::labeled(FieldSpec input) {
  SampleSpec spec;
  spec.fields = {std::move(input), label_field()};
  return spec;
}

SampleSpec SampleSpec::labeled(const transform::ImageDecoderInput& image) {
  SampleSpec spec =
      labeled({.role = FieldRole::kImage, .dtype = DType::kU8, .shape = image.spec().shape});
  spec.image = image;
  return spec;
}

Result<SampleSpec> SampleSpec::captioned(const DatasetRequest& request,
                                         const transform::ImageDecoderInput& image) {
  const auto* const tokenizer = request.config.tokenizer();
  if (tokenizer == nullptr || !tokenizer->has_value())
    return request.config_error("tokenizer", "is required with fields.caption");
  auto vocabulary = WordVocabulary::read((*tokenizer)->path);
  if (!vocabulary) return vocabulary.status().with_context(request.key("tokenizer.path"));
  const config::SequenceConfig& sequence = *request.config.sequence();
  const int64_t length = sequence.max_label_length.value_or(0);
  if (length < 1 || sequence.max_captions < 1 || sequence.max_captions > kMaxElements / length)
    return request.config_error("sequence.max_label_length", "must be at least 1");
  SampleSpec spec = labeled(image);
  spec.fields[1] = {
      .role = FieldRole::kCaption, .dtype = DType::kI64, .shape = {sequence.max_captions, length}};
  spec.max_label_length = static_cast<uint64_t>(length);
  spec.vocabulary = std::make_shared<const WordVocabulary>(*std::move(vocabulary));
  spec.truncates_captions = sequence.on_overflow == config::OnOverflow::kTruncate;
  return spec;
}

const tokenizer::TextTemplate& SampleSpec::text_template() const {
  static const tokenizer::TextTemplate kNone;
  return has_messages() ? kNone : tokenizer->text_template();
}

std::optional<size_t> SampleSpec::label_value() const {
  return has_target(FieldRole::kLabel) ? std::optional(input().num_values) : std::nullopt;
}

uint64_t SampleSpec::values_per_step(size_t value) const {
  return value == 0 ? static_cast<uint64_t>(input().elements()) : 1;
}

Status SampleSpec::in_field(size_t value, Status status) const {
  if (status.ok() || names.empty()) return status;
  return Status(status.code(), std::string(to_string(role_of(value))) + " '" + names[value] + "' " +
                                   status.message());
}

std::string SampleSpec::missing_text(size_t value) const {
  return "has no " + std::string(to_string(role_of(value))) + " '" + names[value] + "'";
}

void SampleSpec::set_input_form(InputForm form) {
  const bool is_tensor = input().role == FieldRole::kInput && !is_sequence();
  if (is_tensor && form == InputForm::kBytes) fields.front().dtype = DType::kU8;
}

std::vector<TensorSpec> SampleSpec::tensors(uint64_t length) const {
  assert(!is_text());
  std::vector<TensorSpec> tensors{tensor_of(*this, input(), length)};
  if (is_sequence())
    tensors.push_back(
        {.name = tensor_name(TensorRole::kLength), .dtype = DType::kI64, .shape = {}});
  if (maybe_target() != nullptr) tensors.push_back(tensor_of(*this, *maybe_target(), length));
  if (has_messages())
    tensors.push_back({.name = tensor_name(TensorRole::kLabels),
                       .dtype = DType::kI64,
                       .shape = {static_cast<int64_t>(length)}});
  if (has_captions())
    tensors.push_back({.name = tensor_name(TensorRole::kReferences),
                       .dtype = DType::kU8,
                       .shape = {static_cast<int64_t>(kReferenceBytes)}});
  for (const FieldSpec& other : others()) tensors.push_back(tensor_of(*this, other, length));
  return tensors;
}

size_t SampleSpec::first_other_tensor() const {
  return 1 + (is_sequence() ? 1 : 0) + (maybe_target() != nullptr ? 1 : 0) +
         (has_messages() ? 1 : 0) + (has_captions() ? 1 : 0);
}

std::vector<size_t> SampleSpec::length_tensors() const {
  std::vector<size_t> tensors;
  if (is_per_step(input())) tensors.push_back(0);
  const bool has_labels = maybe_target() != nullptr && is_per_step(*maybe_target());
  if (has_labels || has_messages()) tensors.push_back(2);  // after "length"
  return tensors;
}

std::string SampleSpec::caption_text() const {
  return "captions=" + shape_text(fields[1].shape) + " vocabulary=" + vocabulary->digest() +
         (truncates_captions ? " truncated" : "");
}

std::string SampleSpec::fingerprint_text() const {
  if (is_sequence()) return sequence_text(*this);
  if (is_text()) return "text=" + list_text(names);
  const std::span all(names);
  std::string text = image ? "image=" : "input=";
  text += list_text(all.first(input().num_values));
  text += image ? ' ' + image->to_text() : " input_shape=" + shape_text(input().shape);
  if (has_captions()) text += ' ' + caption_text();
  const size_t targets = maybe_target() == nullptr ? 0 : maybe_target()->num_values;
  if (targets > 0)
    text += ' ' + std::string(to_string(fields[1].role)) + '=' +
            list_text(all.subspan(input().num_values, targets));
  if (has_target(FieldRole::kTarget))
    text += " num_targets=" + std::to_string(fields[1].elements());
  if (!others().empty()) text += " others=" + list_text(all.subspan(input().num_values + targets));
  return text + lists_text(*this);
}

}  // namespace stoker::data::record
