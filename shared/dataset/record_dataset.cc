// The data set over records whose values are tensors: one record, one sample.
#include <algorithm>
#include <cassert>

#include "shared/dataset/records.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split_fraction.h"
#include "shared/dataset/token_blocks.h"

namespace stoker::dataset {
namespace {

class RecordDataset final : public Dataset {
 public:
  RecordDataset(RecordFields fields, std::string fingerprint, std::unique_ptr<RecordReader> records,
                SampleRange range)
      : fingerprint_(std::move(fingerprint)),
        records_(std::move(records)),
        fields_(std::move(fields)),
        range_(range),
        spec_(fields_.spec(records_->table().form)) {}

  uint64_t size() const override { return range_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override {
    const SequenceLayout* const sequence = fields_.sequence_layout();
    const uint64_t classes = records_->table().classes;
    return classes == 0 && sequence != nullptr && sequence->has_byte_tokens() ? 256 : classes;
  }
  std::vector<std::string> class_names() const override { return records_->table().class_names; }
  const std::string& fingerprint() const override { return fingerprint_; }
  SampleSource source(uint64_t sample) const override {
    return records_->source(range_.begin + sample);
  }
  std::vector<uint64_t> shard_ends() const override {
    return shard_ends_within(records_->table().shard_ends, range_);
  }

  uint64_t max_length() const override {
    return fields_.sequence_layout() == nullptr ? 0 : fields_.sequence_layout()->max_length();
  }
  uint64_t length(uint64_t sample) const override {
    return max_length() == 0 ? 0 : std::min(records_->length(range_.begin + sample), max_length());
  }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return max_length() == 0 ? spec_ : fields_.sequence_layout()->spec(length);
  }

  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    std::vector<FieldValue> values(fields_.names().size());
    const Status read = records_->read(range_.begin + sample, values);
    return read.ok() ? fields_.describe_transforms(values, random_key) : std::string();
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    const uint64_t record = range_.begin + sample;
    thread_local std::vector<FieldValue> values;
    values.assign(fields_.names().size(), FieldValue());
    STOKER_RETURN_IF_ERROR(records_->read(record, values));
    const Status status = to_tensors(record, values, random_key, outputs);
    if (status.ok()) return status;
    const SampleSource where = records_->source(record);
    return status.with_context(where.file + ": " + records_->what(record) + " at offset " +
                               std::to_string(where.offset));
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    const std::vector<uint64_t>& known = records_->table().labels;
    if (known.empty()) return Dataset::read_labels(first, labels);
    for (int64_t& label : labels) label = static_cast<int64_t>(known[range_.begin + first++]);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    records_->prefetch(range_.begin + sample, bytes);
  }

 private:
  Status to_tensors(uint64_t record, std::span<const FieldValue> values,
                    const RandomKey& random_key,
                    std::span<const std::span<std::byte>> outputs) const {
    const RecordTable& table = records_->table();
    const uint64_t label = table.labels.empty() ? 0 : table.labels[record];
    const SequenceLayout* const sequence = fields_.sequence_layout();
    if (sequence == nullptr)
      return fields_.to_tensors(values, table.form, label, random_key, outputs);
    const SequenceLayout::Known known{
        .length = records_->length(record), .label = label, .classes = table.classes};
    return sequence->to_tensors(values, known, outputs);
  }

  const std::string fingerprint_;
  const std::unique_ptr<RecordReader> records_;
  const RecordFields fields_;
  const SampleRange range_;
  const std::vector<TensorSpec> spec_;
};

std::string format_spec(config::OnMissingField choice) {
  switch (choice) {
    case config::OnMissingField::kError:
      return "error";
    case config::OnMissingField::kDrop:
      return "drop";
  }
  return "";
}

std::string format_spec(config::OnOverflow choice) {
  switch (choice) {
    case config::OnOverflow::kError:
      return "error";
    case config::OnOverflow::kTruncate:
      return "truncate";
    case config::OnOverflow::kDrop:
      return "drop";
  }
  return "";
}

}  // namespace

Result<std::string> record_fingerprint_text(std::string_view format,
                                            const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const RecordFields fields, RecordFields::of(request));
  const config::RecordConfig& record = *request.config.record();
  std::string text = "format=" + std::string(format) + ' ' + split.to_text() + ' ' +
                     fields.to_text() + " on_missing_field=" + format_spec(record.on_missing_field);
  const SequenceLayout* const sequence = fields.sequence_layout();
  if (sequence != nullptr) text += " on_overflow=" + format_spec(record.sequence.on_overflow);
  const bool has_classes = fields.label() || (sequence != nullptr && sequence->has_labels());
  if (has_classes) text += " num_classes=" + std::to_string(record.num_classes.value_or(0));
  if (!fields.is_text()) return text;
  STOKER_ASSIGN_OR_RETURN(const uint64_t context, context_of(request));
  return text + " block_size=" + std::to_string(context);
}

Result<std::unique_ptr<Dataset>> make_record_dataset(const DatasetRequest& request,
                                                     RecordFields fields, std::string fingerprint,
                                                     std::unique_ptr<RecordReader> records) {
  if (fields.is_text())
    return make_token_blocks(request, std::move(fingerprint), std::move(records));
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, records->table().size()));
  return std::unique_ptr<Dataset>(std::make_unique<RecordDataset>(
      std::move(fields), std::move(fingerprint), std::move(records), range));
}

}  // namespace stoker::dataset
