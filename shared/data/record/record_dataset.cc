#include "shared/data/record/record_dataset.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_role.h"
#include "shared/base/utf8.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/sample_assembler.h"
#include "shared/data/sample_range.h"

namespace stoker::data::record {

Status RecordReader::read_labels(uint64_t, std::span<int64_t>) const { return labels_unknown(); }

Status RecordReader::in_record(uint64_t record, const RecordValues&, const Status& status) const {
  return status.with_context(source(record).file);
}

namespace {

// TokenBlocks: the texts of all records as one byte stream, split into samples of `block_size` + 1
// tokens.
//
// Each text is followed by one byte 0, which does not occur in text. It separates adjacent texts
// and is an end token that a model can learn. Consecutive samples overlap by one byte, as in format
// `text`.
//
// Errors: kInvalidArgument if the split is shorter than one sample.

constexpr uint64_t kMaxBytes = uint64_t{1} << 62;  // of all texts together

class TokenBlocks final : public Dataset, public SampleFiles {
 public:
  // `ends`: the offset in the stream at which each text and its end token end.
  TokenBlocks(std::string fingerprint, std::unique_ptr<RecordReader> records,
              std::vector<uint64_t> ends, SampleRange range, uint64_t block_size)
      : records_(std::move(records)),
        texts_(*records_->maybe_texts()),
        ends_(std::move(ends)),
        begin_(range.begin),
        block_size_(block_size),
        info_{.size = (range.size() - 1) / block_size,
              .fingerprint = std::move(fingerprint),
              .spec = {{.name = tensor_name(TensorRole::kTokens),
                        .dtype = DType::kU8,
                        .shape = {static_cast<int64_t>(block_size + 1)}}},
              .classes = 256,
              .maybe_files = this} {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return records_->source(text_at(begin_ + sample * block_size_));
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 1 && outputs[0].size() == block_size_ + 1);
    std::span<std::byte> rest = outputs[0];
    uint64_t position = begin_ + sample * block_size_;
    for (uint64_t text = text_at(position); !rest.empty(); ++text) {
      const uint64_t from = position - (text == 0 ? 0 : ends_[text - 1]);
      const uint64_t left = ends_[text] - 1 - position;  // without the end token
      const std::span<std::byte> taken = rest.first(std::min<uint64_t>(left, rest.size()));
      if (!taken.empty()) STOKER_RETURN_IF_ERROR(texts_.read_text(text, from, taken));
      rest = rest.subspan(taken.size());
      if (rest.empty()) break;
      rest[0] = std::byte{0};
      rest = rest.subspan(1);
      position = ends_[text];
    }
    return {};
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    uint64_t rest = block_size_ + 1;
    uint64_t position = begin_ + sample * block_size_;
    for (uint64_t text = text_at(position); rest > 0; ++text) {
      const uint64_t from = position - (text == 0 ? 0 : ends_[text - 1]);
      const uint64_t taken = std::min(ends_[text] - 1 - position, rest);
      if (taken > 0) texts_.prefetch_text(text, from, taken, bytes);
      rest -= std::min(rest, taken + 1);
      position = ends_[text];
    }
  }

 private:
  uint64_t text_at(uint64_t position) const {
    return static_cast<uint64_t>(std::ranges::upper_bound(ends_, position) - ends_.begin());
  }

  const std::unique_ptr<RecordReader> records_;
  const TextSource& texts_;  // of *records_
  const std::vector<uint64_t> ends_;
  const uint64_t begin_;
  const uint64_t block_size_;
  const DatasetInfo info_;
};

Result<std::unique_ptr<Dataset>> make_token_blocks(const DatasetRequest& request,
                                                   std::string fingerprint,
                                                   std::unique_ptr<RecordReader> records) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  const TextSource* const texts = records->maybe_texts();
  assert(texts != nullptr);
  std::vector<uint64_t> ends(records->size());
  uint64_t length = 0;
  for (uint64_t record = 0; record < ends.size(); ++record) {
    const uint64_t bytes = texts->text_bytes(record);
    if (bytes >= kMaxBytes - length)
      return Status(StatusCode::kCorrupt,
                    request.key("path") + ": its texts are too long together");
    ends[record] = length += bytes + 1;
  }
  const SampleRange range = split.of_count(length);
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  if (range.size() < block_size + 1) return too_short(request, range.size(), "bytes");
  return std::unique_ptr<Dataset>(std::make_unique<TokenBlocks>(
      std::move(fingerprint), std::move(records), std::move(ends), range, block_size));
}

class RecordDataset final : public Dataset, public SampleFiles {
 public:
  RecordDataset(SampleSpec spec, std::string fingerprint, std::unique_ptr<RecordReader> records,
                SampleRange range)
      : records_(std::move(records)),
        assembler_(with_classes(std::move(spec), *records_)),
        range_(range),
        info_{.size = range.size(),
              .fingerprint = std::move(fingerprint),
              .spec = assembler_.spec().tensors(),
              .classes = assembler_.spec().num_classes,
              .class_names = names_of(records_->class_names()),
              .input_columns = columns_of(assembler_.spec(), FieldRole::kInput),
              .target_columns = columns_of(assembler_.spec(), FieldRole::kTarget),
              .shard_ends = shard_ends_within(records_->shard_ends(), range),
              .max_length = assembler_.spec().max_length,
              .length_tensors = assembler_.spec().length_tensors(),
              .maybe_files = this} {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return records_->source(range_.begin + sample);
  }
  uint64_t length(uint64_t sample) const override {
    return max_length() == 0 ? 0 : std::min(records_->length(range_.begin + sample), max_length());
  }
  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    if (!assembler_.spec().image) return {};
    std::vector<FieldValue> fields(assembler_.spec().num_values());
    RecordValues values{.fields = fields};
    const Status read = records_->read(range_.begin + sample, values);
    return read.ok() ? assembler_.describe_transforms(fields, random_key) : std::string();
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == info_.spec.size());
    const uint64_t record = range_.begin + sample;
    const size_t num_values = assembler_.spec().num_values();
    if (num_values <= kFewValues) {
      // Only the values that are used are constructed: GCC sets a whole array to zero, which takes
      // 3 % of the time of a small sample.
      static_assert(std::is_trivially_destructible_v<FieldValue>);
      alignas(FieldValue) std::byte memory[kFewValues * sizeof(FieldValue)];
      auto* const fields = reinterpret_cast<FieldValue*>(memory);
      std::uninitialized_default_construct_n(fields, num_values);
      return read_record(record, {fields, num_values}, random_key, outputs);
    }
    thread_local std::vector<FieldValue> fields;
    fields.assign(num_values, FieldValue());
    return read_record(record, fields, random_key, outputs);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return records_->read_labels(range_.begin + first, labels);
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    records_->prefetch(range_.begin + sample, bytes);
  }

 private:
  // Samples with at most this many values use the stack, which is faster than thread-local memory.
  static constexpr size_t kFewValues = 4;

  Status read_record(uint64_t record, std::span<FieldValue> fields, const RandomKey& random_key,
                     std::span<const std::span<std::byte>> outputs) const {
    RecordValues values{.fields = fields,
                        .length = max_length() == 0 ? 0 : records_->length(record),
                        .label = records_->label(record),
                        .input_tensor = outputs.front(),
                        .target_tensor = assembler_.spec().maybe_target() != nullptr
                                             ? outputs[assembler_.spec().target_tensor()]
                                             : std::span<std::byte>()};
    STOKER_RETURN_IF_ERROR(records_->read(record, values));
    Status status = assembler_.assemble(values, random_key, outputs);
    if (!status.ok()) status = records_->in_record(record, values, status);
    return status;
  }

  static std::vector<std::string> columns_of(const SampleSpec& spec, FieldRole role) {
    std::vector<std::string> names;  // as they are stored
    for (size_t i = 0; i < std::min(spec.names.size(), spec.num_values()); ++i)
      if (spec.role_of(i) == role) names.push_back(escape_invalid_utf8(spec.names[i]));
    return names;
  }
  // An index of an earlier release can have other bytes.
  static std::vector<std::string> names_of(std::vector<std::string> names) {
    for (std::string& name : names) name = escape_invalid_utf8(name);
    return names;
  }
  static SampleSpec with_classes(SampleSpec spec, const RecordReader& records) {
    spec.num_classes = records.classes();
    if (spec.num_classes == 0 && (spec.has_end_token() || spec.has_messages()))
      spec.num_classes = spec.tokenizer ? spec.tokenizer->size() : 256;
    return spec;
  }

  const std::unique_ptr<RecordReader> records_;
  const SampleAssembler assembler_;
  const SampleRange range_;
  const DatasetInfo info_;
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
  STOKER_ASSIGN_OR_RETURN(const SampleSpec spec, SampleSpec::of(request));
  const config::RecordConfig& record = *request.config.record();
  std::string text = "format=" + std::string(format) + ' ' + split.to_text() + ' ' +
                     spec.fingerprint_text() +
                     " on_missing_field=" + format_spec(record.on_missing_field);
  if (spec.is_sequence()) text += " on_overflow=" + format_spec(record.sequence.on_overflow);
  if (spec.has_target(FieldRole::kLabel) || spec.has_target(FieldRole::kLabels) || spec.has_mask())
    text += " num_classes=" + std::to_string(record.num_classes.value_or(0)) +
            class_names_text(record.class_names);
  if (!spec.is_text()) return text;
  STOKER_ASSIGN_OR_RETURN(const uint64_t block_size, block_size_of(request));
  return text + " block_size=" + std::to_string(block_size);
}

Result<std::unique_ptr<Dataset>> make_record_dataset(const DatasetRequest& request, SampleSpec spec,
                                                     std::string fingerprint,
                                                     std::unique_ptr<RecordReader> records) {
  if (spec.is_text()) return make_token_blocks(request, std::move(fingerprint), std::move(records));
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, records->size()));
  return make_record_dataset(std::move(spec), std::move(fingerprint), std::move(records), range);
}

std::unique_ptr<Dataset> make_record_dataset(SampleSpec spec, std::string fingerprint,
                                             std::unique_ptr<RecordReader> records,
                                             SampleRange range) {
  return std::make_unique<RecordDataset>(std::move(spec), std::move(fingerprint),
                                         std::move(records), range);
}

}  // namespace stoker::data::record
