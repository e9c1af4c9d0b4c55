#include "shared/model/user_model.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/layer_builder.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

constexpr int64_t kProbeSamples = 2;  // samples

Status check_forward(const std::string& what) { return Status(StatusCode::kMismatch, what); }

Status check_output(const at::Tensor& output, const ModelContext& model_context) {
  if (!output.defined()) return check_forward("forward() returned no tensor");
  const auto actual = output.sizes().vec();
  std::vector<int64_t> expected{kProbeSamples};
  if (model_context.is_predicting) expected.push_back(model_context.input[0]);
  // The model may output another number of time steps than its input has.
  if (model_context.has_per_step_labels)
    expected.push_back(actual.size() == 3 ? actual[1] : model_context.input[0]);
  expected.push_back(model_context.outputs);
  expected.insert(expected.end(), model_context.pixels.begin(), model_context.pixels.end());
  if (actual == expected && output.is_floating_point()) return {};
  return check_forward("forward() returned " + std::string(c10::toString(output.scalar_type())) +
                       ' ' + format_shape(actual) + " for " + std::to_string(kProbeSamples) +
                       " samples of " + format_shape(model_context.input) +
                       "; the task needs Float " + format_shape(expected));
}

at::Tensor zeros_for(const ModelContext& model_context) {
  std::vector<int64_t> shape{kProbeSamples};
  shape.insert(shape.end(), model_context.input.begin(), model_context.input.end());
  return at::zeros(shape, model_context.has_tokens ? at::kLong : at::kFloat);
}

}  // namespace

Result<ModelContext> make_model_context(std::optional<int64_t> num_classes, const Samples& sample,
                                        uint64_t classes) {
  ModelContext model_context;
  const auto has = [&](TensorRole role) { return find_tensor(sample, role) != nullptr; };
  const TensorSpec* const tokens = find_tensor(sample, TensorRole::kTokens);
  const TensorSpec* const input =
      tokens != nullptr ? tokens : find_tensor(sample, TensorRole::kInput);
  if (input == nullptr)
    return check_forward("the data has neither input nor tokens: " + describe(sample));
  model_context.has_tokens = tokens != nullptr;
  model_context.is_predicting = model_context.has_tokens && !has(TensorRole::kLabel) &&
                                !has(TensorRole::kLabels) && !has(TensorRole::kTarget);
  model_context.has_per_step_labels = has(TensorRole::kLabels);
  if (const TensorSpec* const mask = find_tensor(sample, TensorRole::kMask))
    model_context.pixels = mask->shape;
  model_context.input = input->shape;
  if (model_context.has_tokens && (input->shape.size() != 1 || input->shape[0] < 2))
    return check_forward("tokens must be [2 or more]; the data has " + to_string(*input));
  if (model_context.is_predicting) --model_context.input[0];
  const auto outputs = num_outputs(num_classes, sample, classes);
  if (!outputs.ok() && num_classes) return outputs.status();
  model_context.outputs = outputs.ok() ? *outputs : 0;
  model_context.has_outputs = outputs.status();
  return model_context;
}

Status validate_tensors(const Model& model) {
  const auto parameters = model.named_parameters();
  const bool is_trainable =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const auto& parameter) { return parameter.value().requires_grad(); });
  if (parameters.is_empty()) return check_forward("has no parameters; nothing would be trained");
  if (!is_trainable)
    return check_forward("has no parameter with requires_grad; nothing would be trained");
  for (const auto& parameter : parameters)
    if (parameter.value().scalar_type() != at::kFloat)
      return check_forward(
          "parameter " + parameter.key() + " is " + c10::toString(parameter.value().scalar_type()) +
          "; parameters must be Float (train.precision selects a lower precision)");
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : named_tensors(model)) {
    if (!find_dtype(tensor.scalar_type()))
      return check_forward(name + " is " + c10::toString(tensor.scalar_type()) +
                           ", which checkpoints do not support");
    if (!tensor.device().is_cpu())
      return check_forward(name + " is on " + tensor.device().str() +
                           "; create the model on the CPU, stoker moves it to the device");
    const auto [other, is_new] = names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new)
      return check_forward("one tensor has the names " + other->second + " and " + name +
                           "; register it once");
  }
  return {};
}

Status validate_user_model(Model& model, const ModelContext& model_context) {
  STOKER_RETURN_IF_ERROR(model_context.has_outputs);
  STOKER_RETURN_IF_ERROR(validate_tensors(model));
  try {
    const at::NoGradGuard no_grad;
    model.eval();
    const at::Tensor output = model.forward(zeros_for(model_context));
    model.train();
    return check_output(output, model_context);
  } catch (const c10::Error& error) {
    return user_model_error(error, "forward() fails");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInvalidArgument, "forward() throws: " + first_line(error.what()));
  }
}

at::Tensor extend_steps(const at::Tensor& values, int64_t steps, double padding) {
  if (values.dim() < 2 || values.size(1) >= steps) return values.contiguous();
  std::vector<int64_t> pad(static_cast<size_t>(2 * (values.dim() - 1)), 0);
  pad.back() = steps - values.size(1);
  return at::constant_pad_nd(values, pad, padding).contiguous();
}

LossTerm loss_of(const at::Tensor& sum, const at::Tensor& count) {
  TORCH_CHECK(sum.dim() == 0, "the loss has the shape ", sum.sizes(), ", it must be a scalar");
  TORCH_CHECK(count.numel() == 1, "the count of the loss has the shape ", count.sizes(),
              ", it must be a scalar");
  const at::Tensor divisor = count.reshape({}).to(sum.scalar_type());
  const at::Tensor has_values = divisor.gt(0);
  // A sum without values can have other terms, such as a regularization. If it is NaN, its gradient is not used.
  const at::Tensor is_used = has_values.logical_or(sum.detach().isfinite());
  const at::Tensor mean = at::where(is_used, sum, at::zeros_like(sum)) /
                          at::where(has_values, divisor, at::ones_like(divisor));
  return {mean.to(at::kFloat), divisor.detach()};
}

void add_metric(const std::string& name, const at::Tensor& sum, const at::Tensor& count,
                StepOutput& step) {
  const auto append = [&name](const at::Tensor& value, at::Tensor& all) {
    TORCH_CHECK(value.numel() == 1, name, " has the shape ", value.sizes(),
                ", it must be a scalar");
    const at::Tensor one = value.detach().reshape({1}).to(at::kDouble);
    all = all.defined() ? at::cat({all, one}) : one;
  };
  append(sum, step.metric_sums);
  append(count, step.metric_counts);
}

void register_tensor(torch::nn::Module& root, const std::string& name, const at::Tensor& tensor,
                     bool is_parameter) {
  torch::nn::Module* at = &root;
  size_t from = 0;
  for (size_t dot = 0; (dot = name.find('.', from)) != std::string::npos; from = dot + 1) {
    const std::string child = name.substr(from, dot - from);
    const auto children = at->named_children();
    const auto* const found = children.find(child);
    at = found != nullptr ? found->get()
                          : at->register_module(child, std::make_shared<torch::nn::Module>()).get();
  }
  if (is_parameter)
    at->register_parameter(name.substr(from), tensor, tensor.requires_grad());
  else
    at->register_buffer(name.substr(from), tensor);
}

Status user_model_error(const c10::Error& error, std::string_view what) {
  const Status reported = to_status(error, what);
  return reported.code() == StatusCode::kOutOfMemory
             ? reported
             : Status(StatusCode::kInvalidArgument, reported.message());
}

Status with_model_path(const Status& status, const std::string& path) {
  const bool has_path = status.message().find(path) != std::string::npos;
  return status.with_context(has_path ? "model.path" : "model.path: " + path);
}

}  // namespace stoker::model
