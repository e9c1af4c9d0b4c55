#include "shared/model/gelu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/fused_kernels.h"
#include "shared/model/linear.h"
#include "shared/model/lora.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows whose gradients of the bias a thread sums; the sums of the parts are added by LibTorch.
constexpr int64_t kRowsOfBiasPart = 32;

struct FusedGelu : torch::autograd::Function<FusedGelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            bool is_tanh) {
    at::Tensor output = at::empty_like(x);
    const int64_t width = bias.numel();
    fused_kernels(x.device())
        .gelu({.x = kernel_pointer<Bf16>(x),
               .bias = kernel_pointer(bias),
               .output = kernel_pointer<Bf16>(output),
               .rows = x.numel() / width,
               .width = width,
               .is_tanh = is_tanh});
    context->save_for_backward({x, bias});
    context->saved_data["is_tanh"] = is_tanh;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    const at::Tensor of_output = with_kernel_layout(gradients[0], at::kBFloat16);
    const at::Tensor of_x = at::empty_like(x);
    const int64_t width = bias.numel(), rows = x.numel() / width;
    const int64_t parts = (rows + kRowsOfBiasPart - 1) / kRowsOfBiasPart;
    const bool has_bias_gradient = context->needs_input_grad(1);
    const at::Tensor of_bias =
        has_bias_gradient ? at::empty({parts, width}, bias.options()) : at::Tensor();
    fused_kernels(x.device())
        .gelu_backward({.x = kernel_pointer<Bf16>(x),
                        .bias = kernel_pointer(bias),
                        .output_gradient = kernel_pointer<Bf16>(of_output),
                        .x_gradient = kernel_pointer<Bf16>(of_x),
                        .maybe_bias_gradients = kernel_pointer(of_bias),
                        .rows = rows,
                        .width = width,
                        .parts = parts,
                        .is_tanh = context->saved_data["is_tanh"].toBool()});
    return {of_x, has_bias_gradient ? of_bias.sum(0) : at::Tensor(), at::Tensor()};
  }
};

at::Tensor apply_gelu(const at::Tensor& x, GeluForm form) {
  return form == GeluForm::kTanh ? at::gelu(x, "tanh") : at::gelu(x);
}

}  // namespace

at::Tensor linear_gelu(const torch::nn::Linear& layer, const at::Tensor& input, GeluForm form) {
  const at::Tensor& bias = layer->bias;
  const bool can_fuse = bf16_kernels(input.device()).gelu != nullptr && bias.defined() &&
                        has_kernel_layout(bias, at::kFloat) && input.numel() > 0;
  if (!can_fuse) return apply_gelu(linear(layer, input), form);
  const at::Tensor product =
      add_adapter(*layer, input, linear(input, layer->weight, /*bias=*/at::Tensor()));
  if (!has_kernel_layout(product, at::kBFloat16)) return apply_gelu(product + bias, form);
  return FusedGelu::apply(product, bias, form == GeluForm::kTanh);
}

}  // namespace stoker::model
