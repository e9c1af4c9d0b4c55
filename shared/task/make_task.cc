#include "shared/model/data_fit.h"
#include "shared/task/kinds.h"

namespace stoker::task {

Result<size_t> component(const Samples& sample, const std::string& name, const std::string& task) {
  for (size_t i = 0; i < sample.size(); ++i)
    if (sample[i].name == name) return i;
  return Status(Code::kMismatch, "task " + task + " needs samples with `" + name +
                                     "`; the data has " + model::describe(sample));
}

Result<std::unique_ptr<Task>> make_task(const config::TaskConfig& config,
                                        const std::vector<TensorSpec>& sample, uint64_t classes) {
  switch (config.kind) {
    case config::TaskKind::kLanguageModel:
      return make_language_model(sample, classes);
    case config::TaskKind::kClassification:
      return make_classification(config, sample, classes);
    case config::TaskKind::kRegression:
      return make_regression(config, sample, classes);
    case config::TaskKind::kMultiLabel:
      return make_multi_label(config, sample, classes);
    case config::TaskKind::kTagging:
      return make_tagging(config, sample, classes);
    case config::TaskKind::kCtc:
      return make_ctc(config, sample, classes);
  }
  return Status(Code::kInvalidArgument, "task.kind: not a kind of task");
}

}  // namespace stoker::task
