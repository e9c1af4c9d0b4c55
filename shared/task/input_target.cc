#include "shared/task/input_target.h"

#include "shared/task/kinds.h"

namespace stoker::task {

Result<InputAndTarget> find_input_and_target(const config::Normalize* maybe_normalize,
                                             const std::vector<TensorSpec>& sample,
                                             uint64_t classes, const std::string& task,
                                             const std::string& needs) {
  InputAndTarget places;
  STOKER_ASSIGN_OR_RETURN(places.input, find_model_input(maybe_normalize, sample, task));
  STOKER_ASSIGN_OR_RETURN(places.target, component(sample, "target", task));
  const TensorSpec& target = sample[places.target];
  if (target.dtype != DType::kF32 || target.shape.size() != 1 || classes != 0) {
    return Status(Code::kMismatch, "task " + task + " needs " + needs + "; the data has " +
                                       to_string(target) + " of " + std::to_string(classes) +
                                       " classes");
  }
  places.width = target.shape[0];
  return places;
}

}  // namespace stoker::task
