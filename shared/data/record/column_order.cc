#include "shared/data/record/column_order.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "shared/base/dataset_schema.h"
#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/data/dataset_decorator.h"

namespace stoker::data::record {
namespace {

// Which of the two tensors with named columns.
struct Field {
  std::string key;  // in `fields`
  TensorRole role;
  std::vector<std::string> DatasetInfo::*columns;
};
const Field kInput{"input", TensorRole::kInput, &DatasetInfo::input_columns};
const Field kTarget{"target", TensorRole::kTarget, &DatasetInfo::target_columns};

class ReorderedDataset final : public DatasetDecorator {
 public:
  // Column i of the result is column `from[i]` of tensor `tensor` of `data`.
  ReorderedDataset(std::unique_ptr<Dataset> data, const Field& field,
                   const std::vector<std::string>& columns, size_t tensor, std::vector<size_t> from)
      : DatasetDecorator(*data),
        data_(std::move(data)),
        info_(data_->info()),
        tensor_(tensor),
        from_(std::move(from)) {
    info_.*field.columns = columns;
  }

  const DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    STOKER_RETURN_IF_ERROR(data_->read(sample, random_key, outputs));
    reorder(outputs[tensor_]);
    return {};
  }
  BatchReadResult read_batch(std::span<const SampleReadRequest> samples,
                             std::span<const std::span<std::byte>> rows) const override {
    BatchReadResult read = data_->read_batch(samples, rows);
    const size_t bytes = rows[tensor_].size() / samples.size();
    for (size_t row = 0; row < read.good; ++row) reorder(rows[tensor_].subspan(row * bytes, bytes));
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
  const size_t tensor_;
  const std::vector<size_t> from_;
};

std::optional<size_t> find_tensor(const Dataset& data, TensorRole role, size_t columns) {
  const auto found = std::ranges::find_if(data.spec(), [=](const TensorSpec& spec) {
    return role_of(spec) == role && spec.dtype == DType::kF32 &&
           spec.bytes() == columns * sizeof(float);
  });
  if (found == data.spec().end()) return std::nullopt;
  return static_cast<size_t>(found - data.spec().begin());
}

// Those of `names` that are not in `others`.
std::vector<std::string> missing_in(const std::vector<std::string>& others,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  std::ranges::copy_if(names, std::back_inserter(missing), [&](const std::string& name) {
    return std::ranges::find(others, name) == others.end();
  });
  return missing;
}

// ", of which only data.val has p"
std::string only_in(const std::string& dataset, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  return ", of which only " + dataset + " has " + summarize_names(names);
}

// `are_given`: the configuration names the columns of `data`.
Result<std::unique_ptr<Dataset>> reorder(const Field& field, const std::string& of,
                                         const std::vector<std::string>& wanted,
                                         const std::string& key, bool are_given,
                                         std::unique_ptr<Dataset> data) {
  const std::vector<std::string>& columns = data->info().*field.columns;
  if (columns.empty() || wanted.empty() || columns == wanted) return data;
  // One value can be a list of numbers, and is named differently in another format.
  const bool is_single = columns.size() == 1 || wanted.size() == 1;
  if (is_single && (are_given || columns.size() != wanted.size())) return data;
  const std::string both = key + " has the " + field.key + " columns " + summarize_names(columns) +
                           ", but " + of + " has " + summarize_names(wanted);
  if (!std::ranges::is_permutation(columns, wanted)) {
    const std::vector<std::string> only_here = missing_in(wanted, columns);
    const bool have_common = only_here.size() < columns.size();
    if (are_given && columns.size() == wanted.size() && !have_common) {
      log_warn("columns renamed", {{"dataset", key},
                                   {"field", field.key},
                                   {"columns", summarize_names(columns)},
                                   {"expected", summarize_names(wanted)}});
      return data;
    }
    std::string differences;
    if (have_common)
      differences = only_in(key, only_here) + only_in(of, missing_in(columns, wanted));
    const std::string setting = key + ".fields." + field.key;
    return Status(
        StatusCode::kMismatch,
        both + differences + "; name the same columns in both" +
            (have_common ? ", in the files and in " + setting
                         : ", or, if these are the same under other names, list them in " +
                               setting + " in the order of " + of));
  }
  std::vector<size_t> from;
  for (const std::string& column : wanted)
    from.push_back(static_cast<size_t>(std::ranges::find(columns, column) - columns.begin()));
  const auto tensor = find_tensor(*data, field.role, columns.size());
  if (!tensor || (field.role == TensorRole::kInput && data->max_length() > 0))
    return Status(StatusCode::kMismatch,
                  both + "; use the same order in " + key + ".fields." + field.key);
  log_info("columns reordered", {{"dataset", key},
                                 {"field", field.key},
                                 {"columns", summarize_names(columns)},
                                 {"expected", summarize_names(wanted)}});
  return std::unique_ptr<Dataset>(
      std::make_unique<ReorderedDataset>(std::move(data), field, wanted, *tensor, std::move(from)));
}

}  // namespace

Result<std::unique_ptr<Dataset>> with_column_order(const ColumnOrder& wanted,
                                                   const std::string& key,
                                                   const config::DatasetConfig& config,
                                                   std::unique_ptr<Dataset> data) {
  const config::FieldNames* const fields = config.fields();
  STOKER_ASSIGN_OR_RETURN(data,
                          reorder(kInput, wanted.of, wanted.input, key,
                                  fields != nullptr && !fields->input.empty(), std::move(data)));
  return reorder(kTarget, wanted.of, wanted.target, key, /*are_given=*/true, std::move(data));
}

}  // namespace stoker::data::record
