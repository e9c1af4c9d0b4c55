#include "shared/task/regression_batch.h"

#include "shared/task/task_factories.h"

namespace stoker::task {

Result<RegressionBatch> find_regression_batch(const config::Normalize* maybe_normalize,
                                              const std::vector<TensorSpec>& sample,
                                              uint64_t classes, const std::string& task,
                                              const std::string& needs) {
  RegressionBatch indices;
  STOKER_ASSIGN_OR_RETURN(indices.input, find_model_input(maybe_normalize, sample, task));
  STOKER_ASSIGN_OR_RETURN(indices.target, component_index(sample, TensorRole::kTarget, task));
  const TensorSpec& target = sample[indices.target];
  if (target.dtype != DType::kF32 || target.shape.size() != 1 || classes != 0) {
    return Status(StatusCode::kMismatch, "task " + task + " needs " + needs + "; the data has " +
                                             to_string(target) + " of " + std::to_string(classes) +
                                             " classes");
  }
  indices.width = target.shape[0];
  return indices;
}

}  // namespace stoker::task
