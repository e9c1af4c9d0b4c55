#include "shared/data/record/class_mapping.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <ranges>
#include <unordered_map>
#include <utility>

#include "shared/base/tensor_role.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/record/class_counts.h"
#include "shared/data/record/column_order.h"

namespace stoker::data::record {
namespace {

// The training index of a class that data.train does not have.
constexpr int64_t kUnknown = -1;

// Index of the label, if the dataset has one scalar class index per sample.
std::optional<size_t> find_label(const Dataset& data) {
  const auto& spec = data.spec();
  const auto found = std::ranges::find_if(spec, [](const TensorSpec& tensor) {
    return role_of(tensor) == TensorRole::kLabel && tensor.dtype == DType::kI64 &&
           tensor.shape.empty();
  });
  if (found == spec.end()) return std::nullopt;
  return static_cast<size_t>(found - spec.begin());
}

class RemappedDataset final : public DatasetDecorator {
 public:
  // `numbers[i]`: the training index of class i of this dataset; empty: unchanged.
  RemappedDataset(std::unique_ptr<Dataset> data, ClassMapping train,
                  std::vector<int64_t> train_indices)
      : DatasetDecorator(*data),
        data_(std::move(data)),
        info_(data_->info()),
        train_indices_(std::move(train_indices)),
        label_(find_label(*data_)) {
    info_.classes = train.count;
    info_.class_names = std::move(train.names);
  }

  const DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(data_->read(sample, random_key, outputs));
    return map_label(sample, outputs);
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = data_->read_batch(samples, rows);
    RowOutputs outputs(rows, samples.size());
    for (size_t row = 0; row < read.good; ++row)
      if (Status mapped = map_label(samples[row].sample, outputs.of(row)); !mapped.ok())
        return {.good = row, .status = std::move(mapped)};
    return read;
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    STOKER_RETURN_IF_ERROR(data_->read_labels(first, labels));
    for (int64_t& label : labels)
      if (label >= 0 && static_cast<size_t>(label) < train_indices_.size())
        label = train_indices_[static_cast<size_t>(label)];
    return {};
  }

 private:
  // The label can come from another process, which is not trusted to respect classes().
  Status map_label(uint64_t sample, std::span<const std::span<std::byte>> outputs) const {
    if (!label_ || train_indices_.empty()) return {};
    int64_t label = 0;
    std::memcpy(&label, outputs[*label_].data(), sizeof label);
    if (label < 0 || static_cast<size_t>(label) >= train_indices_.size())
      return Status(StatusCode::kCorrupt, "label " + std::to_string(label) + ": there are " +
                                              std::to_string(train_indices_.size()) + " classes")
          .with_context(data::to_string(source(sample)));
    const int64_t train_index = train_indices_[static_cast<size_t>(label)];
    if (train_index == kUnknown)
      return Status(StatusCode::kCorrupt,
                    "label " + std::to_string(label) + " is no class of data.train")
          .with_context(data::to_string(source(sample)));
    std::memcpy(outputs[*label_].data(), &train_index, sizeof label);
    return {};
  }

  const std::unique_ptr<Dataset> data_;
  DatasetInfo info_;
  const std::vector<int64_t> train_indices_;
  const std::optional<size_t> label_;
};

Status unknown_class(const std::string& dataset, const std::string& what,
                     const ClassMapping& train) {
  return Status(StatusCode::kMismatch, "data." + dataset + ": " + what + ", but data.train has " +
                                           std::to_string(train.count) +
                                           " classes without it, so the model has no output for "
                                           "it; remove its samples, or add some to data.train");
}

std::vector<std::string> names_or_indices(const std::vector<std::string>& names, uint64_t count) {
  if (!names.empty()) return names;
  std::vector<std::string> indices;
  for (uint64_t index = 0; index < count; ++index) indices.push_back(std::to_string(index));
  return indices;
}

std::string describe_classes(const std::vector<std::string>& names, uint64_t count) {
  return names.empty() ? "class indices up to " + std::to_string(count - 1)
                       : "the class names " + summarize_names(names);
}

// Whether a class without a name in data.train has samples; if that is not known, it may have.
std::vector<bool> have_samples(const Dataset& data) {
  const auto counts = count_classes(data);
  std::vector<bool> has(data.classes(), true);
  if (counts.ok())
    for (size_t of_class = 0; of_class < has.size(); ++of_class)
      has[of_class] = (*counts)[of_class] > 0;
  return has;
}

// The training index of each class of the dataset; kUnknown for one without samples that
// data.train does not have.
Result<std::vector<int64_t>> map_class_names(const ClassMapping& train, const std::string& dataset,
                                             const Dataset& data) {
  std::unordered_map<std::string, int64_t> of_train;
  for (const std::string& name : names_or_indices(train.names, train.count))
    of_train.try_emplace(name, std::ssize(of_train));
  const std::vector<std::string> names = names_or_indices(data.class_names(), data.classes());
  const bool has_both = !train.names.empty() && !data.class_names().empty();
  const std::vector<bool> has_samples =
      has_both ? std::vector<bool>(names.size(), true) : have_samples(data);
  std::vector<int64_t> train_indices;
  for (size_t of_class = 0; of_class < names.size(); ++of_class) {
    const auto found = of_train.find(names[of_class]);
    train_indices.push_back(found == of_train.end() ? kUnknown : found->second);
    if (found != of_train.end() || !has_samples[of_class]) continue;
    if (has_both)
      return unknown_class(dataset, "there is a class '" + names[of_class] + "'", train);
    return Status(
        StatusCode::kMismatch,
        "data." + dataset + " has " + describe_classes(data.class_names(), data.classes()) +
            ", but data.train has " + describe_classes(train.names, train.count) + ": class '" +
            names[of_class] + "' is none of them; use the same labels in both, or set data." +
            (data.class_names().empty() ? dataset : "train") + ".class_names");
  }
  return train_indices;
}

}  // namespace

ClassMapping mapping_to(DatasetSchema train, const config::Config& config) {
  return {.count = config.task.has_classes() ? train.num_classes : 0,
          .names = std::move(train.class_names),
          .outputs = static_cast<uint64_t>(config.model.num_classes.value_or(0)),
          .input_columns = std::move(train.input_columns),
          .target_columns = std::move(train.target_columns)};
}

Result<std::unique_ptr<Dataset>> with_class_mapping(const ClassMapping& train,
                                                    const std::string& name,
                                                    std::unique_ptr<Dataset> data) {
  const std::vector<std::string> names = data->class_names();
  if (train.count == 0 || data->classes() == 0) return data;
  if (names.empty() && train.names.empty()) {
    if (data->classes() > std::max(train.count, train.outputs))
      return unknown_class(name, "there is a label " + std::to_string(data->classes() - 1), train);
    if (data->classes() >= train.count) return data;
    return std::unique_ptr<Dataset>(
        std::make_unique<RemappedDataset>(std::move(data), train, std::vector<int64_t>()));
  }
  if (names == train.names && data->classes() == train.count) return data;
  STOKER_ASSIGN_OR_RETURN(auto train_indices, map_class_names(train, name, *data));
  const bool are_same =
      std::ranges::equal(train_indices, std::views::iota(int64_t{0}, std::ssize(train_indices)));
  if (!are_same && !find_label(*data))
    return Status(StatusCode::kMismatch,
                  "data." + name +
                      ": its classes have another order than those of data.train, which "
                      "is only supported for one label per sample; use the same classes in both");
  return std::unique_ptr<Dataset>(
      std::make_unique<RemappedDataset>(std::move(data), train, std::move(train_indices)));
}

Result<std::unique_ptr<Dataset>> with_training_columns(const ClassMapping& train,
                                                       const std::string& name,
                                                       const config::DatasetConfig& config,
                                                       std::unique_ptr<Dataset> data) {
  return with_column_order(
      {.of = "data.train", .input = train.input_columns, .target = train.target_columns},
      "data." + name, config, std::move(data));
}

}  // namespace stoker::data::record
