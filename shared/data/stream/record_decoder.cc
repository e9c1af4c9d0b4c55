#include "shared/data/stream/record_decoder.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "shared/config/dataset_config.h"
#include "shared/data/format/framed_records.h"
#include "shared/data/format/record_fields.h"
#include "shared/data/format/tar_values.h"
#include "shared/data/format/token_values.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_assembler.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/stream/record_stream.h"
#include "shared/data/transform/random_transforms.h"

namespace stoker::data::stream {
namespace {

using format::RecordFields;
using record::FieldValue;
using record::SampleSpec;

Status unusable(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

// ---- Formats without fields

// A block of text or tokens.
class BlockDecoder final : public RecordDecoder {
 public:
  explicit BlockDecoder(const Framing& framing)
      : framing_(framing),
        classes_(framing.token_bytes == 1 ? 256 : 0),
        spec_{format::token_block_spec(framing.block_bytes / framing.token_bytes,
                                       framing.token_bytes)} {}

  std::vector<TensorSpec> spec(uint64_t /*length*/) const override { return spec_; }
  uint64_t classes() const override { return classes_; }
  uint64_t max_length() const override { return 0; }
  std::vector<size_t> length_tensors() const override { return {}; }
  uint64_t length() const override { return 0; }

  Result<bool> read(std::span<const std::byte> record) override {
    assert(record.size() == framing_.block_bytes);
    block_ = record;
    const auto large = format::find_large_token(record, framing_.token_bytes);
    if (!large) return true;
    return unusable("token " + std::to_string(large->token) + ", number " +
                    std::to_string(large->index) +
                    " of the block, is larger than 2147483647; is the dtype right?");
  }

  Status write(const RandomKey&, std::span<const std::span<std::byte>> outputs) override {
    assert(outputs.size() == 1 && outputs[0].size() == spec_[0].bytes());
    std::ranges::copy(block_, outputs[0].last(block_.size()).begin());
    format::widen_tokens_in_place(outputs[0], framing_.token_bytes);
    return {};
  }

 private:
  // Constant after construction.
  const Framing framing_;
  const uint64_t classes_;
  const std::vector<TensorSpec> spec_;

  std::span<const std::byte> block_;
};

// ---- Formats with fields

class FieldDecoder final : public RecordDecoder {
 public:
  FieldDecoder(std::unique_ptr<RecordFields> reader, SampleSpec spec,
               transform::RandomTransforms augmentation, const config::DatasetConfig& config)
      : reader_(std::move(reader)),
        assembler_(std::move(spec)),
        augmentation_(std::move(augmentation)),
        on_missing_field_(config.record()->on_missing_field),
        on_overflow_(config.record()->sequence.on_overflow),
        has_class_names_(!config.record()->class_names.empty()),
        class_labels_(config.record()->class_names, record::text_labels_of(config)),
        fields_(assembler_.spec().names.size()) {}

  std::vector<TensorSpec> spec(uint64_t length) const override {
    return length == 0 ? spec().tensors() : spec().tensors(length);
  }
  uint64_t classes() const override { return spec().num_classes; }
  uint64_t max_length() const override { return spec().max_length; }
  std::vector<size_t> length_tensors() const override { return spec().length_tensors(); }
  int64_t priority() const override { return priority_; }
  uint64_t length() const override { return std::min(length_, spec().max_length); }

  Result<bool> read(std::span<const std::byte> record) override {
    STOKER_RETURN_IF_ERROR(reader_->read(record, fields_, std::nullopt));
    const auto missing = std::ranges::find_if(fields_, record::is_missing);
    if (missing != fields_.end()) return drop_missing(missing - fields_.begin());
    STOKER_RETURN_IF_ERROR(read_label());
    STOKER_RETURN_IF_ERROR(read_priority());
    return spec().is_sequence() ? read_length() : Result<bool>(true);
  }

  Status write(const RandomKey& random_key,
               std::span<const std::span<std::byte>> outputs) override {
    STOKER_RETURN_IF_ERROR(assembler_.assemble(
        {.fields = values(), .length = length_, .label = label_}, random_key, outputs));
    augmentation_.apply(random_key, outputs);
    return {};
  }

 private:
  const SampleSpec& spec() const { return assembler_.spec(); }
  // Those of the sample.
  std::span<FieldValue> values() { return std::span(fields_).first(spec().num_values()); }

  Result<bool> drop_missing(ptrdiff_t value) const {
    const auto index = static_cast<size_t>(value);
    if (on_missing_field_ == config::OnMissingField::kDrop) return false;
    return unusable(spec().missing_text(index));
  }

  Status read_label() {
    const auto value = spec().label_value();
    if (!value) return {};
    const auto label = has_class_names_ ? class_labels_.class_of(fields_[*value])
                                        : class_labels_.index_of(fields_[*value]);
    if (!label) return spec().in_field(*value, label.status());
    if (*label >= spec().num_classes)
      return spec().in_field(*value,
                             unusable("is " + std::to_string(*label) + ", not below num_classes (" +
                                      std::to_string(spec().num_classes) + ")"));
    label_ = *label;
    return {};
  }

  Status read_priority() {
    const size_t value = spec().num_values();
    if (value == fields_.size()) return {};
    const auto priority = record::integer(fields_[value]);
    if (!priority) return spec().in_field(value, priority.status());
    priority_ = *priority;
    return {};
  }

  Result<bool> read_length() {
    STOKER_ASSIGN_OR_RETURN(const auto measure, assembler_.measure(values()));
    if (measure.length == 0) return drop_missing(0);
    if (measure.classes > spec().num_classes && spec().has_target(record::FieldRole::kLabels))
      return spec().in_field(
          1, unusable("holds " + std::to_string(measure.classes - 1) + ", not below num_classes (" +
                      std::to_string(spec().num_classes) + ")"));
    length_ = measure.length;
    const auto excess = assembler_.find_excess(measure);
    if (!excess || (excess->is_of_steps && on_overflow_ == config::OnOverflow::kTruncate))
      return true;
    if (on_overflow_ == config::OnOverflow::kDrop) return false;
    return unusable(excess->what + ", more than " + excess->key + " (" +
                    std::to_string(excess->limit) + ")");
  }

  // Constant after construction.
  const std::unique_ptr<RecordFields> reader_;
  const record::SampleAssembler assembler_;
  const transform::RandomTransforms augmentation_;
  const config::OnMissingField on_missing_field_;
  const config::OnOverflow on_overflow_;
  const bool has_class_names_;
  const record::ClassLabels class_labels_;

  // Of the last record.
  std::vector<FieldValue> fields_;
  uint64_t length_ = 0;
  uint64_t label_ = 0;
  int64_t priority_ = 0;
};

// The classes are not counted, because nothing is scanned.
Status set_classes(const DatasetRequest& request, SampleSpec& spec) {
  const bool has_labels = spec.has_target(record::FieldRole::kLabel) ||
                          spec.has_target(record::FieldRole::kLabels) || spec.has_mask();
  const uint64_t names = request.config.class_names().size();
  const auto given = static_cast<uint64_t>(request.config.num_classes().value_or(0));
  if (has_labels && given == 0 && names == 0)
    return request.config_error("num_classes",
                                "is required with stream, because nothing is scanned");
  if (has_labels && given > 0 && given < names)
    return request.config_error("num_classes", "is " + std::to_string(given) + ", but there are " +
                                                   std::to_string(names) + " class_names");
  spec.num_classes = spec.has_captions()    ? spec.vocabulary->size()
                     : has_labels           ? std::max(given, names)
                     : spec.has_end_token() ? 256
                                            : 0;
  return {};
}

Result<SampleSpec> make_spec(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(SampleSpec spec, SampleSpec::of(request));
  if (spec.is_text())
    return request.config_error("sequence.max_length",
                                "is required for fields.text with stream: blocks of several texts "
                                "need an index");
  STOKER_RETURN_IF_ERROR(set_classes(request, spec));
  const std::string& priority = request.config.fields()->priority;
  if (!priority.empty()) spec.names.push_back(priority);
  return spec;
}

Result<std::unique_ptr<RecordDecoder>> make_field_decoder(const DatasetRequest& request,
                                                          std::unique_ptr<RecordFields> fields,
                                                          SampleSpec spec) {
  STOKER_ASSIGN_OR_RETURN(auto augmentation,
                          transform::RandomTransforms::of(request, spec.tensors()));
  return std::unique_ptr<RecordDecoder>(std::make_unique<FieldDecoder>(
      std::move(fields), std::move(spec), std::move(augmentation), request.config));
}

Result<std::unique_ptr<RecordDecoder>> make_tar_decoder(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(SampleSpec spec, make_spec(request));
  STOKER_ASSIGN_OR_RETURN(auto fields, format::make_tar_fields(request, spec));
  return make_field_decoder(request, std::move(fields), std::move(spec));
}

}  // namespace

Result<std::unique_ptr<RecordDecoder>> RecordDecoder::make(const DatasetRequest& request) {
  const config::DatasetFormat format = request.config.format();
  if (format == config::DatasetFormat::kJsonl) return make(request, format::framed_jsonl());
  if (format == config::DatasetFormat::kTfrecord) return make(request, format::framed_tfrecord());
  if (format == config::DatasetFormat::kWebdataset) return make_tar_decoder(request);
  STOKER_ASSIGN_OR_RETURN(const Framing framing, framing_of(request));
  return std::unique_ptr<RecordDecoder>(std::make_unique<BlockDecoder>(framing));
}

Result<std::unique_ptr<RecordDecoder>> RecordDecoder::make(const DatasetRequest& request,
                                                           const format::FramedFormat& format) {
  const config::DatasetConfig config = format.resolved(request.config);
  const DatasetRequest resolved{.name = request.name, .config = config};
  STOKER_ASSIGN_OR_RETURN(SampleSpec spec, make_spec(resolved));
  auto fields = format.make_fields(spec);
  return make_field_decoder(resolved, std::move(fields), std::move(spec));
}

}  // namespace stoker::data::stream
