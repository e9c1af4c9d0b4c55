#include <variant>

#include "shared/model/data_compatibility.h"
#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

struct TaskFactory {
  const config::Normalize* maybe_normalize;
  const Samples& sample;
  uint64_t classes;
  const std::vector<config::BatchTransform>& batch_transforms;

  Result<std::unique_ptr<Task>> operator()(const config::LanguageModelingTask& config) const {
    return make_language_modeling(config, sample);
  }
  Result<std::unique_ptr<Task>> operator()(const config::ClassificationTask& config) const {
    return make_classification(config, maybe_normalize, sample, classes, batch_transforms);
  }
  Result<std::unique_ptr<Task>> operator()(const config::BinaryClassificationTask& config) const {
    return make_binary_classification(config, maybe_normalize, sample, classes);
  }
  Result<std::unique_ptr<Task>> operator()(const config::RegressionTask& config) const {
    return make_regression(config, maybe_normalize, sample, classes);
  }
  Result<std::unique_ptr<Task>> operator()(
      const config::MultilabelClassificationTask& config) const {
    return make_multilabel_classification(config, maybe_normalize, sample, classes);
  }
  Result<std::unique_ptr<Task>> operator()(const config::SequenceLabelingTask& config) const {
    return make_sequence_labeling(config, maybe_normalize, sample, classes);
  }
  Result<std::unique_ptr<Task>> operator()(const config::CtcTask& config) const {
    return make_ctc(config, maybe_normalize, sample, classes);
  }
  Result<std::unique_ptr<Task>> operator()(const config::CaptioningTask& config) const {
    return make_captioning(config, maybe_normalize, sample);
  }
  Result<std::unique_ptr<Task>> operator()(const config::CustomTask&) const {
    return make_custom(nullptr, maybe_normalize, sample);
  }
};

}  // namespace

Result<size_t> component_index(const Samples& sample, TensorRole role, const std::string& task) {
  for (size_t i = 0; i < sample.size(); ++i)
    if (role_of(sample[i]) == role) return i;
  return Status(StatusCode::kMismatch, "task " + task + " needs samples with `" +
                                           tensor_name(role) + "`; the data has " +
                                           model::describe(sample));
}

Result<std::unique_ptr<Task>> make_task(const config::TaskConfig& config,
                                        const config::Normalize* maybe_normalize,
                                        const std::vector<TensorSpec>& sample, uint64_t classes,
                                        const std::vector<config::BatchTransform>& batch_transforms,
                                        bool model_has_loss) {
  auto task =
      std::visit(TaskFactory{maybe_normalize, sample, classes, batch_transforms}, config.task);
  if (!task.ok() || !model_has_loss || config.name() == config::TaskName::kCustom) return task;
  return make_custom(std::move(*task), maybe_normalize, sample);
}

}  // namespace stoker::task
