#include "shared/model/step_inputs.h"

#include <algorithm>
#include <optional>
#include <span>

#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include "shared/base/tensor_role.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/user_model.h"

namespace stoker::model {
namespace {

constexpr double kIgnoredLabel = -100;  // PyTorch's ignore_index

std::string shapes_of(std::span<const TensorSpec> specs) {
  std::string text;
  for (const TensorSpec& spec : specs)
    text +=
        (text.empty() ? "" : ", ") + to_string(TensorSpec{"", spec.dtype, spec.shape}).substr(1);
  return text.empty() ? "nothing" : text;
}

bool fits_spec(const TensorSpec& ours, const TensorSpec& theirs) {
  return ours.dtype == theirs.dtype && ours.shape == theirs.shape;
}

// `input_ids` is Hugging Face's name of the tokens.
bool is_called(const std::string& field, const std::string& parameter) {
  return field == parameter ||
         (parameter == "input_ids" && field == tensor_name(TensorRole::kTokens));
}

const at::Tensor& tensor_of(const NamedTensors& fields, const std::string& name) {
  const auto found = std::ranges::find(fields, name, &NamedTensors::value_type::first);
  TORCH_CHECK(found != fields.end(), "the data has no `", name, '`');
  return found->second;
}

}  // namespace

Result<StepInputs> StepInputs::bind(const graph::GraphFile& file,
                                    const std::vector<TensorSpec>& sample) {
  for (const TensorSpec& spec : sample)
    if (role_of(spec) == TensorRole::kPositions)
      return Status(StatusCode::kMismatch,
                    "a model with its own loss cannot train on packed documents: " +
                        describe(sample) + "; remove sequence.packing");
  STOKER_ASSIGN_OR_RETURN(StepInputs bound,
                          file.fields.empty() ? in_order(file, sample) : by_name(file, sample));
  bound.has_length_ = find_tensor(sample, TensorRole::kLength) != nullptr;
  for (size_t i = 0; i < file.min_steps.size(); ++i) bound.inputs_[i].min_steps = file.min_steps[i];
  return bound;
}

Result<StepInputs> StepInputs::in_order(const graph::GraphFile& file,
                                        const std::vector<TensorSpec>& sample) {
  StepInputs bound;
  std::vector<TensorSpec> inputs, targets;
  const TensorSpec* const tokens = find_tensor(sample, TensorRole::kTokens);
  const TensorSpec* const input =
      tokens != nullptr ? tokens : find_tensor(sample, TensorRole::kInput);
  const TensorSpec* const length = find_tensor(sample, TensorRole::kLength);
  if (input == nullptr)
    return Status(StatusCode::kMismatch,
                  "the data has neither input nor tokens: " + describe(sample));
  inputs.push_back(as_field(*input));
  for (const TensorSpec& spec : sample)
    if (&spec != input && &spec != length) targets.push_back(as_field(spec));
  bound.is_predicting_ = tokens != nullptr && targets.empty();
  if (bound.is_predicting_) {
    TensorSpec& values = inputs[0];
    if (values.shape.size() != 1 || values.shape[0] < 2)
      return Status(StatusCode::kMismatch,
                    "tokens must be [2 or more]; the data has " + to_string(*tokens));
    --values.shape[0];
    targets = {values};
  } else if (length != nullptr) {
    inputs.push_back(*length);
  }
  const std::span all(file.train.inputs);
  const auto check = [](const char* what, const std::vector<TensorSpec>& ours,
                        std::span<const TensorSpec> theirs) -> Status {
    if (std::ranges::equal(ours, theirs, fits_spec)) return {};
    return Status(StatusCode::kMismatch, "was exported with the " + std::string(what) + ' ' +
                                             shapes_of(theirs) + " per sample; the data has " +
                                             shapes_of(ours) + ": export it with such a batch");
  };
  STOKER_RETURN_IF_ERROR(check("input", inputs, all.first(file.num_inputs)));
  STOKER_RETURN_IF_ERROR(check("targets", targets, all.subspan(file.num_inputs)));
  for (TensorSpec& spec : inputs) bound.inputs_.push_back({.field = spec.name, .spec = spec});
  for (TensorSpec& spec : targets) bound.inputs_.push_back({.field = spec.name, .spec = spec});
  if (bound.is_predicting_) {
    bound.inputs_[0].part = Part::kButLast;
    bound.inputs_[1].part = Part::kButFirst;
  }
  return bound;
}

Result<StepInputs> StepInputs::by_name(const graph::GraphFile& file,
                                       const std::vector<TensorSpec>& sample) {
  StepInputs bound;
  std::vector<TensorSpec> taken = file.train.inputs;
  for (size_t i = 0; i < taken.size(); ++i) taken[i].name = file.fields[i];
  const auto mismatch = [&](const std::string& what) {
    return Status(StatusCode::kMismatch, "its forward() takes " + describe(taken) +
                                             "; the data has " + describe(sample) + ": " + what);
  };
  for (const TensorSpec& wanted : taken) {
    const auto found = std::ranges::find_if(
        sample, [&](const TensorSpec& spec) { return is_called(spec.name, wanted.name); });
    if (found == sample.end())
      return mismatch(wanted.name + " is missing; name parameters as the tensors of the dataset");
    const TensorSpec given = as_field(*found);
    // Numbers of files are F32.
    const bool is_converted = role_of(given) == TensorRole::kTarget && given.dtype == DType::kF32 &&
                              wanted.dtype == DType::kI64;
    const bool is_reshaped = given.shape != wanted.shape && given.elements() == wanted.elements();
    if ((given.dtype != wanted.dtype && !is_converted) ||
        (given.shape != wanted.shape && !is_reshaped))
      return mismatch(wanted.name + " differs; export it with such a batch");
    bound.inputs_.push_back({.field = given.name,
                             .spec = wanted,
                             .is_reshaped = is_reshaped,
                             .is_converted = is_converted});
  }
  return bound;
}

std::vector<at::Tensor> StepInputs::arguments(const NamedTensors& fields) const {
  std::vector<at::Tensor> arguments;
  std::vector<double> paddings;
  int64_t free_steps = 0;  // of the longest input
  for (const Input& input : inputs_) {
    at::Tensor values = tensor_of(fields, input.field);
    double padding = input.field == tensor_name(TensorRole::kLabels) ? kIgnoredLabel : 0;
    if (input.part != Part::kAll) {
      const bool is_target = input.part == Part::kButFirst;
      const int64_t steps = values.size(1) - 1;
      values = values.narrow(1, is_target ? 1 : 0, steps);
      if (is_target) padding = kIgnoredLabel;
      if (is_target && has_length_) {
        const at::Tensor length =
            tensor_of(fields, tensor_name(TensorRole::kLength)).clamp(0, steps + 1) - 1;
        const at::Tensor step = at::arange(steps, length.options()).unsqueeze(0);
        values = values.masked_fill(step.ge(length.unsqueeze(1)), kIgnoredLabel);
      }
    }
    if (input.is_converted) values = values.to(to_scalar_type(input.spec.dtype));
    if (input.is_reshaped) {
      std::vector<int64_t> shape{values.size(0)};
      shape.insert(shape.end(), input.spec.shape.begin(), input.spec.shape.end());
      values = values.reshape(shape);
    }
    if (input.min_steps > 0 && values.dim() > 1)
      free_steps = std::max({free_steps, input.min_steps, values.size(1)});
    arguments.push_back(values);
    paddings.push_back(padding);
  }
  // Batches are padded to their longest sequence only, but most graphs have a fixed length.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const bool can_be_shorter = has_length_ && !input.is_reshaped && !input.spec.shape.empty();
    const int64_t steps = input.min_steps > 0 ? free_steps
                          : can_be_shorter    ? input.spec.shape[0]
                                              : 0;
    arguments[i] = extend_steps(arguments[i], steps, paddings[i]);
  }
  return arguments;
}

}  // namespace stoker::model
