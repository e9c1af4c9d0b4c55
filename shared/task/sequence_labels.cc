#include "shared/task/sequence_labels.h"

#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include "shared/task/label_loss.h"
#include "shared/task/task_factories.h"

namespace stoker::task {

Result<SequenceLabels> find_sequence_labels(const config::Normalize* maybe_normalize,
                                            const Samples& sample, uint64_t classes,
                                            const std::string& task) {
  SequenceLabels indices;
  STOKER_ASSIGN_OR_RETURN(indices.input, find_model_input(maybe_normalize, sample, task));
  STOKER_RETURN_IF_ERROR(num_time_steps(indices.input, sample, task).status());
  STOKER_ASSIGN_OR_RETURN(indices.labels, component_index(sample, TensorRole::kLabels, task));
  const TensorSpec& labels = sample[indices.labels];
  if (labels.dtype == DType::kI64 && labels.shape.size() == 1 && labels.elements() > 0 &&
      classes >= 2)
    return indices;
  return Status(StatusCode::kMismatch,
                "task " + task +
                    " needs `labels` I64 [labels] of 2 or more classes; the data "
                    "has " +
                    to_string(labels) + " of " + std::to_string(classes) + " classes");
}

at::Tensor step_outputs(model::Model& model, const Batch& batch, const ModelInput& input) {
  at::Tensor outputs = model_outputs(model, batch, input);
  const int64_t steps = batch.at(input.values).size(1);
  TORCH_CHECK(outputs.dim() == 3 && outputs.size(1) == steps,
              "the task needs an output for each of the ", steps,
              " steps, [batch, steps, outputs]; the model returned ", outputs.sizes());
  return outputs;
}

at::Tensor without_padding(const at::Tensor& labels, const at::Tensor& length) {
  const at::Tensor step = at::arange(labels.size(1), length.options()).unsqueeze(0);
  return labels.masked_fill(step.ge(length.unsqueeze(1)), kIgnoredLabel);
}

}  // namespace stoker::task
