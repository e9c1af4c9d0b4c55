#include "shared/data/record/label_range_check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <variant>

#include "shared/base/tensor_role.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/transform/image_decoder_input.h"

namespace stoker::data::record {
namespace {

// The vocabulary size of the model, and the setting that defines it.
struct Vocabulary {
  int64_t size = 0;
  std::string key = "model.vocab_size";
};

// nullopt if neither the configuration nor a tokenizer with `classes` tokens defines it.
std::optional<Vocabulary> find_vocabulary(const config::Config& config, uint64_t classes) {
  const config::ModelConfig& model = config.model;
  if (const auto* const sequential = std::get_if<config::SequentialConfig>(&model.arch)) {
    const auto* const embedding =
        sequential->layers.empty()
            ? nullptr
            : std::get_if<config::EmbeddingLayer>(&sequential->layers.front().variant());
    if (embedding == nullptr) return std::nullopt;
    return Vocabulary{embedding->num_embeddings, "model.layers[0].embedding.num_embeddings"};
  }
  if (model.is_user_file()) {
    // The configuration does not contain the input vocabulary of a model from a file. In language
    // modeling, however, each token is also a target, so it is below the number of outputs.
    if (config.task.name() == config::TaskName::kLanguageModeling && model.num_classes)
      return Vocabulary{*model.num_classes, "model.num_classes"};
    return std::nullopt;
  }
  if (const auto size = model.vocab_size()) return Vocabulary{*size};
  if (model.output_vocabulary() != nullptr && classes > 0)
    return Vocabulary{static_cast<int64_t>(classes), "the vocabulary size of the tokenizer"};
  return std::nullopt;
}

template <typename Number>
Number value_at(std::span<const std::byte> values, size_t i) {
  Number number;
  std::memcpy(&number, values.data() + i * sizeof number, sizeof number);
  return number;
}

struct OutOfRange {
  size_t index = 0;
  int64_t value = 0;
};

// The first value out of range. The first loop has no early exit so that compilers can vectorize it;
// usually all values are valid and only this loop runs.
template <typename Number>
std::optional<OutOfRange> find_out_of_range(std::span<const std::byte> values, int64_t min_value,
                                            int64_t max_value,
                                            std::optional<int64_t> maybe_ignored) {
  const size_t count = values.size() / sizeof(Number);
  const int64_t ignored = maybe_ignored.value_or(min_value);
  const auto is_outside = [&](Number number) {
    return (number < min_value || number > max_value) && number != ignored;
  };
  bool any = false;
  for (size_t i = 0; i < count; ++i) any |= is_outside(value_at<Number>(values, i));
  for (size_t i = 0; any && i < count; ++i)
    if (const auto value = value_at<Number>(values, i); is_outside(value))
      return OutOfRange{.index = i, .value = value};
  return std::nullopt;
}

class RangeCheckedDataset final : public DatasetDecorator {
 public:
  RangeCheckedDataset(std::unique_ptr<Dataset> data, LabelRangeCheck limits)
      : DatasetDecorator(*data), data_(std::move(data)), ranges_(std::move(limits)) {}

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(data_->read(sample, random_key, outputs));
    thread_local std::vector<std::span<const std::byte>> tensors;
    tensors.assign(outputs.begin(), outputs.end());
    return in_sample(sample, ranges_.check(tensors));
  }

  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = data_->read_batch(samples, rows);
    if (read.good == 0) return read;
    thread_local std::vector<std::span<const std::byte>> tensors;
    tensors.clear();
    for (const auto& tensor : rows)
      tensors.push_back(tensor.first(tensor.size() / samples.size() * read.good));
    const LabelRangeCheck::RowError verdict = ranges_.check_rows(tensors, read.good);
    if (verdict.status.ok()) return read;
    return {.good = verdict.row, .status = in_sample(samples[verdict.row].sample, verdict.status)};
  }

 private:
  Status in_sample(uint64_t sample, const Status& status) const {
    return status.ok() ? status : status.with_context(to_string(source(sample)));
  }

  const std::unique_ptr<Dataset> data_;
  const LabelRangeCheck ranges_;
};

}  // namespace

LabelRangeCheck LabelRangeCheck::of(const config::Config& config,
                                    const std::vector<TensorSpec>& sample, uint64_t classes) {
  LabelRangeCheck limits;
  const auto vocabulary = find_vocabulary(config, classes);
  const auto answers =
      std::max(static_cast<int64_t>(classes), config.model.num_classes.value_or(0));
  const bool is_ctc = config.task.name() == config::TaskName::kCtc;
  for (size_t i = 0; i < sample.size(); ++i) {
    const TensorSpec& spec = sample[i];
    const auto role = role_of(spec);
    if (role == TensorRole::kTokens && spec.dtype == DType::kI32 && vocabulary)
      limits.ranges_.push_back(
          {.tensor = i,
           .max_value = vocabulary->size - 1,
           .what = "token",
           .why = vocabulary->key + " is " + std::to_string(vocabulary->size) + ", so tokens are"});
    if ((role == TensorRole::kLabel || role == TensorRole::kLabels) && spec.dtype == DType::kI64 &&
        answers > 0)
      limits.ranges_.push_back(
          {.tensor = i,
           .dtype = spec.dtype,
           .min_value = is_ctc ? 1 : 0,
           .max_value = answers - 1,
           .maybe_ignored =
               role == TensorRole::kLabels ? std::optional(kPaddedLabel) : std::nullopt,
           .what = "label",
           .why = "there are " + std::to_string(answers) + " classes" +
                  (is_ctc ? ", of which 0 is the blank" : "") + ", so labels are"});
    if (role == TensorRole::kMask && spec.dtype == DType::kU8 && answers > 0)
      limits.ranges_.push_back(
          {.tensor = i,
           .dtype = spec.dtype,
           .max_value = answers - 1,
           .maybe_ignored = std::to_integer<int64_t>(transform::kIgnoredClass),
           .what = "class of a pixel",
           .why = "there are " + std::to_string(answers) + " classes, so classes of pixels are"});
  }
  return limits;
}

Status LabelRangeCheck::check(const LabelRange& range, std::span<const std::byte> values) {
  const auto find = range.dtype == DType::kU8    ? find_out_of_range<uint8_t>
                    : range.dtype == DType::kI32 ? find_out_of_range<int32_t>
                                                 : find_out_of_range<int64_t>;
  const auto found = find(values, range.min_value, range.max_value, range.maybe_ignored);
  if (!found) return {};
  const bool is_alone = values.size() == dtype_bytes(range.dtype);
  return Status(StatusCode::kCorrupt,
                range.what + ' ' + std::to_string(found->value) +
                    (is_alone ? "" : " at index " + std::to_string(found->index)) + ": " +
                    range.why + " from " + std::to_string(range.min_value) + " to " +
                    std::to_string(range.max_value));
}

Status LabelRangeCheck::check(std::span<const std::span<const std::byte>> tensors) const {
  for (const LabelRange& range : ranges_)
    STOKER_RETURN_IF_ERROR(check(range, tensors[range.tensor]));
  return {};
}

LabelRangeCheck::RowError LabelRangeCheck::check_rows(
    std::span<const std::span<const std::byte>> tensors, size_t rows) const {
  RowError first{.row = rows, .status = {}};
  for (const LabelRange& range : ranges_) {
    const std::span<const std::byte> all = tensors[range.tensor];
    if (check(range, all).ok()) continue;
    const size_t row_bytes = all.size() / rows;
    for (size_t row = 0; row < first.row; ++row) {
      Status status = check(range, all.subspan(row * row_bytes, row_bytes));
      if (!status.ok()) first = {.row = row, .status = std::move(status)};
    }
  }
  return first;
}

Status check_tokenizer_size(const config::Config& config, uint64_t num_tokens) {
  const auto vocabulary = find_vocabulary(config, 0);
  if (!vocabulary || num_tokens <= static_cast<uint64_t>(vocabulary->size)) return {};
  return Status(StatusCode::kMismatch, vocabulary->key + " is " + std::to_string(vocabulary->size) +
                                           ", but data.train.tokenizer has " +
                                           std::to_string(num_tokens) +
                                           " tokens; set it to at least that");
}

std::unique_ptr<Dataset> with_range_check(const config::Config& config,
                                          std::unique_ptr<Dataset> data) {
  LabelRangeCheck limits = LabelRangeCheck::of(config, data->spec(), data->classes());
  if (!limits.any()) return data;
  return std::make_unique<RangeCheckedDataset>(std::move(data), std::move(limits));
}

}  // namespace stoker::data::record
