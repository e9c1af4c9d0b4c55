#include "shared/data/record/column_order.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shared/base/dataset_schema.h"
#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/data/dataset_decorator.h"

namespace stoker::data::record {
namespace {

class ReorderedDataset final : public DatasetDecorator {
 public:
  // Column i of the result is column `from[i]` of the tensor `input` of `data`.
  ReorderedDataset(std::unique_ptr<Dataset> data, std::vector<std::string> columns, size_t input,
                   std::vector<size_t> from)
      : DatasetDecorator(*data),
        data_(std::move(data)),
        info_(data_->info()),
        input_(input),
        from_(std::move(from)) {
    info_.input_columns = std::move(columns);
  }

  const DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(data_->read(sample, random_key, outputs));
    reorder(outputs[input_]);
    return {};
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = data_->read_batch(samples, rows);
    const size_t bytes = rows[input_].size() / samples.size();
    for (size_t row = 0; row < read.good; ++row) reorder(rows[input_].subspan(row * bytes, bytes));
    return read;
  }

 private:
  void reorder(std::span<std::byte> row) const {
    thread_local std::vector<float> before;
    before.resize(from_.size());
    std::memcpy(before.data(), row.data(), row.size());
    for (size_t i = 0; i < from_.size(); ++i)
      std::memcpy(row.data() + i * sizeof(float), &before[from_[i]], sizeof(float));
  }

  const std::unique_ptr<Dataset> data_;
  DatasetInfo info_;
  const size_t input_;
  const std::vector<size_t> from_;
};

std::optional<size_t> find_input(const Dataset& data, size_t columns) {
  const auto found = std::ranges::find_if(data.spec(), [columns](const TensorSpec& spec) {
    return role_of(spec) == TensorRole::kInput && spec.dtype == DType::kF32 &&
           spec.bytes() == columns * sizeof(float);
  });
  if (found == data.spec().end()) return std::nullopt;
  return static_cast<size_t>(found - data.spec().begin());
}

}  // namespace

Result<std::unique_ptr<Dataset>> with_column_order(const ColumnOrder& wanted,
                                                   const std::string& key, bool are_given,
                                                   std::unique_ptr<Dataset> data) {
  const std::vector<std::string>& columns = data->info().input_columns;
  if (columns.empty() || wanted.columns.empty() || columns == wanted.columns) return data;
  // One value can be a list of numbers, and is named differently in another format.
  const bool is_single = columns.size() == 1 || wanted.columns.size() == 1;
  if (is_single && (are_given || columns.size() != wanted.columns.size())) return data;
  const std::string both = key + " has the input columns " + summarize_names(columns) + ", but " +
                           wanted.of + " has " + summarize_names(wanted.columns);
  if (!std::ranges::is_permutation(columns, wanted.columns)) {
    if (are_given && columns.size() == wanted.columns.size()) {
      log_warn("input columns renamed", {{"dataset", key},
                                         {"columns", summarize_names(columns)},
                                         {"expected", summarize_names(wanted.columns)}});
      return data;
    }
    return Status(StatusCode::kMismatch,
                  both + "; name the same columns in the same order in " + key + ".fields.input");
  }
  std::vector<size_t> from;
  for (const std::string& column : wanted.columns)
    from.push_back(static_cast<size_t>(std::ranges::find(columns, column) - columns.begin()));
  const auto input = find_input(*data, columns.size());
  if (!input || data->max_length() > 0)
    return Status(StatusCode::kMismatch, both + "; use the same order in " + key + ".fields.input");
  log_info("input columns reordered", {{"dataset", key},
                                       {"columns", summarize_names(columns)},
                                       {"expected", summarize_names(wanted.columns)}});
  return std::unique_ptr<Dataset>(
      std::make_unique<ReorderedDataset>(std::move(data), wanted.columns, *input, std::move(from)));
}

}  // namespace stoker::data::record
