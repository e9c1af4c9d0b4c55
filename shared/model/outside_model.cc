#include "shared/model/outside_model.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "shared/model/data_fit.h"
#include "shared/model/layer_builder.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

constexpr int64_t kProbed = 2;  // samples

Status refused(const std::string& what) { return Status(Code::kMismatch, what); }

Status check_tensors(const Model& model) {
  const auto parameters = model.named_parameters();
  const bool can_learn =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const auto& parameter) { return parameter.value().requires_grad(); });
  if (parameters.is_empty()) return refused("has no parameters; there is nothing to train");
  if (!can_learn) return refused("has no parameter that asks for a gradient; nothing is trained");
  for (const auto& parameter : parameters)
    if (parameter.value().scalar_type() != at::kFloat)
      return refused("parameter " + parameter.key() + " is " +
                     c10::toString(parameter.value().scalar_type()) +
                     "; parameters must be Float (train.precision computes in less)");
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : named_tensors(model)) {
    if (!maybe_dtype_of(tensor.scalar_type()))
      return refused(name + " is " + c10::toString(tensor.scalar_type()) +
                     ", which a checkpoint cannot hold");
    if (!tensor.device().is_cpu())
      return refused(name + " is on " + tensor.device().str() +
                     "; a model is made on the CPU, and stoker moves it");
    const auto [other, is_new] = names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new)
      return refused("one tensor is called " + other->second + " and " + name +
                     "; register it once");
  }
  return {};
}

Status check_output(const at::Tensor& output, const Surroundings& around) {
  if (!output.defined()) return refused("forward() gives no tensor");
  const auto given = output.sizes().vec();
  std::vector<int64_t> wanted{kProbed};
  if (around.is_predicting) wanted.push_back(around.input[0]);
  // How many steps of an answer there are may be the model's affair.
  if (around.labels_steps) wanted.push_back(given.size() == 3 ? given[1] : around.input[0]);
  wanted.push_back(around.outputs);
  if (given == wanted && output.is_floating_point()) return {};
  return refused("forward() gives " + std::string(c10::toString(output.scalar_type())) + ' ' +
                 shape_text(given) + " for " + std::to_string(kProbed) + " samples of " +
                 shape_text(around.input) + "; the task needs Float " + shape_text(wanted));
}

at::Tensor zeros_for(const Surroundings& around) {
  std::vector<int64_t> shape{kProbed};
  shape.insert(shape.end(), around.input.begin(), around.input.end());
  return at::zeros(shape, around.is_of_tokens ? at::kLong : at::kFloat);
}

}  // namespace

Result<Surroundings> surroundings_of(std::optional<int64_t> num_classes, const Samples& sample,
                                     uint64_t classes) {
  Surroundings around;
  const auto has = [&](const char* name) { return find_component(sample, name) != nullptr; };
  const TensorSpec* const tokens = find_component(sample, "tokens");
  const TensorSpec* const input = tokens != nullptr ? tokens : find_component(sample, "input");
  if (input == nullptr)
    return refused("the data has neither input nor tokens: " + describe(sample));
  around.is_of_tokens = tokens != nullptr;
  around.is_predicting = around.is_of_tokens && !has("label") && !has("labels") && !has("target");
  around.labels_steps = has("labels");
  around.input = input->shape;
  if (around.is_of_tokens && (input->shape.size() != 1 || input->shape[0] < 2))
    return refused("tokens must be [2 or more]; the data has " + to_string(*input));
  if (around.is_predicting) --around.input[0];
  STOKER_ASSIGN_OR_RETURN(around.outputs, outputs_for(num_classes, sample, classes));
  return around;
}

Status check_outside(Model& model, const Surroundings& around) {
  STOKER_RETURN_IF_ERROR(check_tensors(model));
  try {
    const at::NoGradGuard no_grad;
    model.eval();
    const at::Tensor output = model.forward(zeros_for(around));
    model.train();
    return check_output(output, around);
  } catch (const c10::Error& error) {
    return blamed(error, "forward() fails");
  } catch (const std::exception& error) {
    return Status(Code::kInvalidArgument, "forward() throws: " + first_line(error.what()));
  }
}

Status blamed(const c10::Error& error, std::string_view what) {
  const Status said = status_of(error, what);
  return said.code() == Code::kOutOfMemory ? said : Status(Code::kInvalidArgument, said.message());
}

Status at_model_path(const Status& status, const std::string& path) {
  const bool names_it = status.message().find(path) != std::string::npos;
  return status.with_context(names_it ? "model.path" : "model.path: " + path);
}

}  // namespace stoker::model
