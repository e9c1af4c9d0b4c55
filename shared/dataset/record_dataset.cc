// The data set over records whose values are tensors: one record, one sample.
#include <algorithm>
#include <cassert>

#include "shared/dataset/records.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split.h"
#include "shared/dataset/text_windows.h"

namespace stoker::dataset {
namespace {

class RecordDataset final : public Dataset {
 public:
  RecordDataset(RecordFields fields, std::string fingerprint, std::unique_ptr<Records> records,
                Part part)
      : fingerprint_(std::move(fingerprint)),
        records_(std::move(records)),
        fields_(std::move(fields)),
        part_(part),
        spec_(fields_.spec(records_->table().form)) {}

  uint64_t size() const override { return part_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override {
    const SequenceForm* const sequence = fields_.maybe_sequence();
    const uint64_t classes = records_->table().classes;
    return classes == 0 && sequence != nullptr && sequence->speaks_bytes() ? 256 : classes;
  }
  std::vector<std::string> class_names() const override { return records_->table().class_names; }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override { return records_->origin(part_.begin + sample); }
  std::vector<uint64_t> shard_ends() const override {
    return shard_ends_within(records_->table().shard_ends, part_);
  }

  uint64_t longest() const override {
    return fields_.maybe_sequence() == nullptr ? 0 : fields_.maybe_sequence()->longest();
  }
  uint64_t length(uint64_t sample) const override {
    return longest() == 0 ? 0 : std::min(records_->length(part_.begin + sample), longest());
  }
  std::vector<TensorSpec> spec_of_length(uint64_t length) const override {
    return longest() == 0 ? spec_ : fields_.maybe_sequence()->spec(length);
  }

  std::string describe_draws(uint64_t sample, const DrawKey& draw) const override {
    std::vector<FieldValue> values(fields_.names().size());
    const Status read = records_->read(part_.begin + sample, values);
    return read.ok() ? fields_.describe_draws(values, draw) : std::string();
  }

  Status read(uint64_t sample, const DrawKey& draw,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size());
    const uint64_t record = part_.begin + sample;
    thread_local std::vector<FieldValue> values;
    values.assign(fields_.names().size(), FieldValue());
    STOKER_RETURN_IF_ERROR(records_->read(record, values));
    const Status status = to_tensors(record, values, draw, outputs);
    if (status.ok()) return status;
    const Origin where = records_->origin(record);
    return status.with_context(where.file + ": " + records_->what(record) + " at offset " +
                               std::to_string(where.offset));
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    const std::vector<uint64_t>& known = records_->table().labels;
    if (known.empty()) return Dataset::read_labels(first, labels);
    for (int64_t& label : labels) label = static_cast<int64_t>(known[part_.begin + first++]);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    records_->prefetch(part_.begin + sample, bytes);
  }

 private:
  Status to_tensors(uint64_t record, std::span<const FieldValue> values, const DrawKey& draw,
                    std::span<const std::span<std::byte>> outputs) const {
    const RecordTable& table = records_->table();
    const uint64_t label = table.labels.empty() ? 0 : table.labels[record];
    const SequenceForm* const sequence = fields_.maybe_sequence();
    if (sequence == nullptr) return fields_.to_tensors(values, table.form, label, draw, outputs);
    const SequenceForm::Known known{
        .length = records_->length(record), .label = label, .classes = table.classes};
    return sequence->to_tensors(values, known, outputs);
  }

  const std::string fingerprint_;
  const std::unique_ptr<Records> records_;
  const RecordFields fields_;
  const Part part_;
  const std::vector<TensorSpec> spec_;
};

std::string in_words(config::OnMissingField choice) {
  switch (choice) {
    case config::OnMissingField::kError:
      return "error";
    case config::OnMissingField::kDrop:
      return "drop";
  }
  return "";
}

std::string in_words(config::OnOverflow choice) {
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

Result<std::string> record_settings(std::string_view format, const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  STOKER_ASSIGN_OR_RETURN(const RecordFields fields, RecordFields::of(set));
  const config::RecordConfig& record = *set.config.record();
  std::string text = "format=" + std::string(format) + ' ' + split.to_text() + ' ' +
                     fields.to_text() + " on_missing_field=" + in_words(record.on_missing_field);
  const SequenceForm* const sequence = fields.maybe_sequence();
  if (sequence != nullptr) text += " on_overflow=" + in_words(record.sequence.on_overflow);
  const bool has_classes = fields.label() || (sequence != nullptr && sequence->has_labels());
  if (has_classes) text += " num_classes=" + std::to_string(record.num_classes.value_or(0));
  if (!fields.is_text()) return text;
  STOKER_ASSIGN_OR_RETURN(const uint64_t context, context_of(set));
  return text + " block_size=" + std::to_string(context);
}

Result<std::unique_ptr<Dataset>> make_record_dataset(const SetRequest& set, RecordFields fields,
                                                     std::string fingerprint,
                                                     std::unique_ptr<Records> records) {
  if (fields.is_text()) return make_text_windows(set, std::move(fingerprint), std::move(records));
  STOKER_ASSIGN_OR_RETURN(const Part part, part_of_samples(set, records->table().size()));
  return std::unique_ptr<Dataset>(std::make_unique<RecordDataset>(
      std::move(fields), std::move(fingerprint), std::move(records), part));
}

}  // namespace stoker::dataset
