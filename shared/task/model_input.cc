#include "shared/task/model_input.h"

#include <c10/util/Exception.h>

#include "shared/task/task_factories.h"

namespace stoker::task {
namespace {

std::optional<size_t> find_component_index(const Samples& sample, TensorRole role) {
  for (size_t i = 0; i < sample.size(); ++i)
    if (role_of(sample[i]) == role) return i;
  return std::nullopt;
}

}  // namespace

Result<ModelInput> find_model_input(const config::Normalize* maybe_normalize, const Samples& sample,
                                    const std::string& task) {
  ModelInput found;
  if (const auto tokens = find_component_index(sample, TensorRole::kTokens)) {
    found.values = *tokens;
    found.is_tokens = true;
  } else {
    STOKER_ASSIGN_OR_RETURN(found.values, component_index(sample, TensorRole::kInput, task));
    STOKER_ASSIGN_OR_RETURN(found.normalization,
                            find_normalization(maybe_normalize, sample[found.values]));
  }
  found.maybe_length = find_component_index(sample, TensorRole::kLength);
  if (!found.maybe_length) return found;
  const TensorSpec& length = sample[*found.maybe_length];
  if (length.dtype != DType::kI64 || !length.shape.empty())
    return Status(StatusCode::kMismatch, "task " + task +
                                             " needs a `length` I64 [], one value per " +
                                             "sample; the data has " + to_string(length));
  return found;
}

Result<int64_t> num_time_steps(const ModelInput& input, const Samples& sample,
                               const std::string& task) {
  const TensorSpec& values = sample[input.values];
  if (values.shape.size() == (input.is_tokens ? 1 : 2) && values.elements() > 0)
    return values.shape[0];
  return Status(StatusCode::kMismatch,
                "task " + task +
                    " needs sequences, `input` [steps, features] or `tokens` "
                    "[steps]; the data has " +
                    to_string(values));
}

at::Tensor input_values(const Batch& batch, const ModelInput& input) {
  const at::Tensor& values = batch.at(input.values);
  return input.is_tokens ? preprocess_tokens(values)
                         : preprocess_input(values, input.normalization);
}

at::Tensor sequence_lengths(const Batch& batch, const ModelInput& input, int64_t steps) {
  return input.maybe_length ? batch.at(*input.maybe_length).clamp(0, steps) : at::Tensor();
}

model::Outputs training_outputs(model::Model& model, const Batch& batch, const ModelInput& input) {
  const at::Tensor values = input_values(batch, input);
  if (!input.maybe_length) return model.forward_with_aux(values);
  return {model.forward_padded(values, sequence_lengths(batch, input, values.size(1))), {}};
}

at::Tensor model_outputs(model::Model& model, const Batch& batch, const ModelInput& input) {
  const at::Tensor values = input_values(batch, input);
  const at::Tensor outputs =
      input.maybe_length
          ? model.forward_padded(values, sequence_lengths(batch, input, values.size(1)))
          : model.forward(values);
  return outputs.to(at::kFloat);
}

at::Tensor model_outputs_of_width(model::Model& model, const Batch& batch, const ModelInput& input,
                                  int64_t width) {
  at::Tensor outputs = model_outputs(model, batch, input);
  const std::vector<int64_t> expected{batch.at(input.values).size(0), width};
  TORCH_CHECK(outputs.sizes() == expected, "the model returned ", outputs.sizes(),
              "; the task needs ", at::IntArrayRef(expected));
  return outputs;
}

}  // namespace stoker::task
