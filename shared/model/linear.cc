#include "shared/model/linear.h"

#include <optional>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/cpu_product.h"

namespace stoker::model {
namespace {

// Multiplications from which on the faster product outweighs what calling it costs.
constexpr int64_t kWorthIt = 4 << 20;

class LinearByOnednn : public torch::autograd::Function<LinearByOnednn> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    const at::Tensor rows = input.reshape({-1, weight.size(1)});
    context->save_for_backward({rows, weight});
    context->saved_data["has_bias"] = bias.has_value();
    std::vector<int64_t> shape = input.sizes().vec();
    shape.back() = weight.size(0);
    return cpu_product(rows, weight, bias.value_or(at::Tensor())).view(shape);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& rows = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(0)}).contiguous();
    at::Tensor of_input, of_weight, of_bias;
    if (context->needs_input_grad(0)) {
      std::vector<int64_t> shape = gradients[0].sizes().vec();
      shape.back() = weight.size(1);
      of_input = cpu_product(gradient, weight.t()).view(shape);
    }
    if (context->needs_input_grad(1)) of_weight = cpu_product(gradient.t(), rows.t());
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
      of_bias = gradient.sum(0);
    return {of_input, of_weight, of_bias};
  }
};

bool onednn_is_faster() {
  static const bool faster = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f");
  return faster;
}

}  // namespace

at::Tensor linear_by_onednn(const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias) {
  return LinearByOnednn::apply(input, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& input) {
  const at::Tensor& weight = layer->weight;
  const bool is_plain = input.is_cpu() && input.scalar_type() == at::kFloat &&
                        weight.scalar_type() == at::kFloat &&
                        !at::autocast::is_autocast_enabled(at::kCPU);
  if (!is_plain || !onednn_is_faster() || input.numel() * weight.size(0) < kWorthIt)
    return at::linear(input, weight, layer->bias);
  return linear_by_onednn(input, weight, layer->bias);
}

}  // namespace stoker::model
