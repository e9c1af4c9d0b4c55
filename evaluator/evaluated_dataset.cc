#include "evaluator/evaluated_dataset.h"

#include <string_view>
#include <utility>

#include "evaluator/subset.h"
#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/class_warnings.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/sandboxed_dataset.h"
#include "shared/feed/worker_sandbox.h"
#include "shared/model/data_compatibility.h"

namespace stoker::evaluator {
namespace {

std::vector<TensorSpec> schema_of_any_length(const data::Dataset& data) {
  return data.max_length() > 0 ? data.spec_of_length(1) : data.spec();
}

// Whether one model accepts both tensors. Sequences can have different lengths and be packed or not;
// each dataset has its own task.
bool have_same_schema(const std::vector<TensorSpec>& sample, const TensorSpec& tensor,
                      const std::vector<TensorSpec>& first_sample, const TensorSpec& first) {
  const auto is_per_token = [](const std::vector<TensorSpec>& schema, const TensorSpec& spec) {
    const TensorSpec* const tokens = model::find_tensor(schema, TensorRole::kTokens);
    return tokens != nullptr && tokens->shape == spec.shape;
  };
  const auto gives_documents = [](const TensorSpec& spec) {
    return role_of(spec) == TensorRole::kLength || role_of(spec) == TensorRole::kPositions;
  };
  if (tensor == first || (gives_documents(tensor) && gives_documents(first))) return true;
  const auto role = role_of(tensor);
  if (role != role_of(first)) return false;
  if (role == TensorRole::kTokens) return true;
  return role == TensorRole::kLabels && is_per_token(sample, tensor) &&
         is_per_token(first_sample, first);
}

// Checks that one model accepts both datasets.
Status validate_same_schema(const std::string& name, const data::Dataset& data,
                            const std::string& first_name, const data::Dataset& first) {
  const auto schema = schema_of_any_length(data), first_schema = schema_of_any_length(first);
  bool is_same = data.classes() == first.classes() && schema.size() == first_schema.size();
  for (size_t i = 0; is_same && i < schema.size(); ++i)
    is_same = have_same_schema(schema, schema[i], first_schema, first_schema[i]);
  if (is_same) return {};
  return Status(StatusCode::kMismatch,
                "eval.datasets: the inputs differ, so one model cannot evaluate both: " +
                    first_name + " has " + model::describe(first.spec()) + " of " +
                    std::to_string(first.classes()) + " classes, " + name + " has " +
                    model::describe(data.spec()) + " of " + std::to_string(data.classes()));
}

struct OpenedDataset {
  std::unique_ptr<data::Dataset> data;
  SampleBatches::IsQuarantined is_quarantined;  // empty: read in this process
};

// Opens the dataset with the classes of training. Whatever the worker process sends is checked
// last, in this process.
Result<OpenedDataset> open_evaluated_dataset(const config::Config& config, const std::string& name,
                                             const std::string& index_dir,
                                             const ClassMapping& train,
                                             const std::string& feed_program,
                                             const std::stop_token& stop) {
  const auto progress = [&stop](uint64_t, std::string_view) {
    if (stop.stop_requested()) throw data::files::ScanStopped();
  };
  const auto sandbox = feed::make_sandbox(config, feed_program);
  STOKER_ASSIGN_OR_RETURN(auto data, data::pipeline::open_dataset(name, config.data, index_dir,
                                                                  progress, 0, sandbox.get()));
  SampleBatches::IsQuarantined is_quarantined;
  if (config.feed.num_processes > 0) {
    STOKER_ASSIGN_OR_RETURN(
        auto sandboxed,
        feed::SandboxedDataset::open(
            config, {.dataset = name, .index_dir = index_dir, .feed_program = feed_program},
            std::move(data)));
    is_quarantined = [reader = sandboxed.get()](uint64_t sample) {
      return reader->is_quarantined(sample);
    };
    data = std::move(sandboxed);
  }
  STOKER_ASSIGN_OR_RETURN(
      data, with_training_columns(train, name, config.data.at(name), std::move(data)));
  STOKER_ASSIGN_OR_RETURN(data, with_class_mapping(train, name, std::move(data)));
  log_info("dataset opened", {{"dataset", name},
                              {"samples", data->size()},
                              {"fingerprint", data->fingerprint().substr(0, 12)},
                              {"num_classes", data->classes()},
                              {"class_names", summarize_names(data->class_names())},
                              {"input_columns", summarize_names(data->info().input_columns)}});
  if (config.task.has_classes()) data::record::warn_about_classes(name, config.data, *data);
  return OpenedDataset{.data = data::record::with_range_check(config, std::move(data)),
                       .is_quarantined = std::move(is_quarantined)};
}

}  // namespace

Result<std::vector<EvaluatedDataset>> open_evaluated_datasets(const config::Config& config,
                                                              const std::string& index_dir,
                                                              const ClassMapping& train,
                                                              const std::string& feed_program,
                                                              const std::stop_token& stop) {
  std::vector<EvaluatedDataset> datasets;
  for (const std::string& name : config.eval.datasets) {
    STOKER_ASSIGN_OR_RETURN(
        OpenedDataset opened,
        open_evaluated_dataset(config, name, index_dir, train, feed_program, stop));
    auto& data = opened.data;
    STOKER_ASSIGN_OR_RETURN(
        auto task, task::make_task(config.task, config::training_normalization(config),
                                   data->spec(), data->classes(), {}, config.model.has_loss()));
    SampleBatches batches(*data, make_subset(config.eval, data->size()),
                          static_cast<uint64_t>(config.eval.batch_size),
                          config.feed.bucket_boundaries, std::move(opened.is_quarantined));
    datasets.push_back({name, std::move(data), std::move(task), std::move(batches)});
    const EvaluatedDataset& first = datasets.front();
    STOKER_RETURN_IF_ERROR(
        validate_same_schema(name, *datasets.back().data, first.name, *first.data));
  }
  return datasets;
}

}  // namespace stoker::evaluator
