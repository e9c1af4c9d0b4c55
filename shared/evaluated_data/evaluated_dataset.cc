#include "shared/evaluated_data/evaluated_dataset.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/log.h"
#include "shared/base/tensor_role.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/class_warnings.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/sandboxed_dataset.h"
#include "shared/feed/worker_sandbox.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/model_file.h"

namespace stoker::evaluated_data {
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

}  // namespace

// Whatever the worker process sends is checked last, in this process.
Result<EvaluatedDataset> open_evaluated_dataset(const config::Config& config,
                                                const std::string& name,
                                                const data::record::ClassMapping& train,
                                                const OpenOptions& options) {
  EvaluatedDataset opened{
      .name = name, .data = {}, .task = {}, .is_quarantined = {}, .worker_use = {}};
  std::unique_ptr<data::Dataset>& data = opened.data;
  const auto sandbox = feed::make_sandbox(config, options.feed_program);
  STOKER_ASSIGN_OR_RETURN(data, data::pipeline::open_dataset(name, config.data, options.index_dir,
                                                             options.progress, 0, sandbox.get()));
  if (options.reads == Reads::kSamples && config.feed.num_processes > 0) {
    STOKER_ASSIGN_OR_RETURN(
        auto sandboxed,
        feed::SandboxedDataset::open(
            config,
            {.dataset = name, .index_dir = options.index_dir, .feed_program = options.feed_program},
            std::move(data)));
    opened.is_quarantined = [reader = sandboxed.get()](uint64_t sample) {
      return reader->is_quarantined(sample);
    };
    opened.worker_use = [reader = sandboxed.get()] { return reader->worker_use(); };
    data = std::move(sandboxed);
  }
  STOKER_ASSIGN_OR_RETURN(data, data::record::with_training_columns(
                                    train, name, config.data.at(name), std::move(data)));
  STOKER_ASSIGN_OR_RETURN(data, data::record::with_class_mapping(train, name, std::move(data)));
  log_info("dataset opened", {{"dataset", name},
                              {"samples", data->size()},
                              {"fingerprint", data->fingerprint().substr(0, 12)},
                              {"num_classes", data->classes()},
                              {"class_names", summarize_names(data->class_names())},
                              {"input_columns", summarize_names(data->info().input_columns)},
                              {"target_columns", summarize_names(data->info().target_columns)}});
  if (config.task.has_classes()) data::record::warn_about_classes(name, config.data, *data);
  data = data::record::with_range_check(config, std::move(data));
  auto task = task::make_task(config.task, config::training_normalization(config), data->spec(),
                              data->classes(), {}, config.model.has_loss());
  if (!task.ok()) return task.status().with_context("data." + name);
  opened.task = *std::move(task);
  STOKER_RETURN_IF_ERROR(
      model::check_last_eval_batch(config.model, config.eval, name, data->size()));
  return opened;
}

Status check_same_inputs(const EvaluatedDataset& dataset, const EvaluatedDataset& first_dataset) {
  const data::Dataset& data = *dataset.data;
  const data::Dataset& first = *first_dataset.data;
  const auto schema = schema_of_any_length(data), first_schema = schema_of_any_length(first);
  bool is_same = data.classes() == first.classes() && schema.size() == first_schema.size();
  for (size_t i = 0; is_same && i < schema.size(); ++i)
    is_same = have_same_schema(schema, schema[i], first_schema, first_schema[i]);
  if (is_same) return {};
  return Status(StatusCode::kMismatch,
                "eval.datasets: the inputs differ, so one model cannot evaluate both: " +
                    first_dataset.name + " has " + model::describe(first.spec()) + " of " +
                    std::to_string(first.classes()) + " classes, " + dataset.name + " has " +
                    model::describe(data.spec()) + " of " + std::to_string(data.classes()));
}

}  // namespace stoker::evaluated_data
