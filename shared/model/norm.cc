#include "shared/model/norm.h"

#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/fused_kernels.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows whose gradients of the weight a thread sums; the sums of the parts are added by LibTorch.
constexpr int64_t kRowsOfPart = 128;

// Whether the kernel supports the arguments; `delta` can be undefined.
bool can_fuse_norm(const at::Tensor& x, const at::Tensor& delta, const NormWeights& weights) {
  if (weights.is_residual || bf16_kernels(x.device()).norm == nullptr || x.dim() == 0 ||
      x.numel() == 0)
    return false;
  const auto is_supported = [](const at::Tensor& tensor, at::ScalarType dtype) {
    return !tensor.defined() || has_kernel_layout(tensor, dtype);
  };
  return is_supported(x, at::kFloat) && is_supported(weights.weight, at::kFloat) &&
         is_supported(weights.bias, at::kFloat) && is_supported(delta, at::kBFloat16) &&
         (!delta.defined() || delta.sizes() == x.sizes());
}

// The outputs are the sum, if there is a delta, and the normalized sum.
struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const std::optional<at::Tensor>& maybe_delta,
                               const at::Tensor& weight,
                               const std::optional<at::Tensor>& maybe_bias, double eps) {
    const at::Tensor delta = maybe_delta.value_or(at::Tensor()),
                     bias = maybe_bias.value_or(at::Tensor());
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const at::Tensor sum = delta.defined() ? at::empty_like(x) : x;
    const at::Tensor output = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
    const at::Tensor rstd = at::empty({rows}, x.options());
    const at::Tensor mean = bias.defined() ? at::empty({rows}, x.options()) : at::Tensor();
    fused_kernels(x.device())
        .norm({.x = kernel_pointer(x),
               .maybe_delta = kernel_pointer<Bf16>(delta),
               .maybe_sum = delta.defined() ? kernel_pointer(sum) : nullptr,
               .weight = kernel_pointer(weight),
               .maybe_bias = kernel_pointer(bias),
               .output = kernel_pointer<Bf16>(output),
               .maybe_mean = kernel_pointer(mean),
               .rstd = kernel_pointer(rstd),
               .rows = rows,
               .width = width,
               .eps = eps});
    context->set_materialize_grads(false);
    context->save_for_backward({sum, weight, mean, rstd});
    context->saved_data["has_delta"] = delta.defined();
    if (!delta.defined()) return {output};
    return {sum, output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &weight = saved[1], &mean = saved[2], &rstd = saved[3];
    const bool has_delta = context->saved_data["has_delta"].toBool();
    at::Tensor of_output = gradients.back(), of_sum = has_delta ? gradients.front() : at::Tensor();
    // Undefined: the loss does not depend on this output.
    if (!of_output.defined())
      of_output = at::zeros(sum.sizes(), sum.options().dtype(at::kBFloat16));
    of_output = with_kernel_layout(of_output, at::kBFloat16);
    if (of_sum.defined()) of_sum = with_kernel_layout(of_sum, at::kFloat);
    const int64_t width = sum.size(-1), rows = sum.numel() / width;
    const int64_t parts = (rows + kRowsOfPart - 1) / kRowsOfPart;
    const at::Tensor of_x = at::empty_like(sum);
    const at::Tensor of_delta =
        has_delta ? at::empty_like(sum, sum.options().dtype(at::kBFloat16)) : at::Tensor();
    const at::Tensor of_weight = at::empty({parts, width}, sum.options());
    const at::Tensor of_bias = mean.defined() ? at::empty_like(of_weight) : at::Tensor();
    fused_kernels(sum.device())
        .norm_backward({.sum = kernel_pointer(sum),
                        .maybe_mean = kernel_pointer(mean),
                        .rstd = kernel_pointer(rstd),
                        .weight = kernel_pointer(weight),
                        .output_gradient = kernel_pointer<Bf16>(of_output),
                        .maybe_sum_gradient = kernel_pointer(of_sum),
                        .x_gradient = kernel_pointer(of_x),
                        .maybe_delta_gradient = kernel_pointer<Bf16>(of_delta),
                        .weight_gradients = kernel_pointer(of_weight),
                        .maybe_bias_gradients = kernel_pointer(of_bias),
                        .rows = rows,
                        .width = width,
                        .parts = parts});
    return {of_x, of_delta, of_weight.sum(0), of_bias.defined() ? of_bias.sum(0) : at::Tensor(),
            at::Tensor()};
  }
};

std::optional<at::Tensor> maybe_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

at::Tensor norm(const at::Tensor& x, const NormWeights& weights) {
  if (can_fuse_norm(x, {}, weights))
    return FusedNorm::apply(x, std::nullopt, weights.weight, maybe_tensor(weights.bias),
                            weights.eps)
        .front();
  const at::IntArrayRef shape = weights.weight.sizes();
  return weights.bias.defined()
             ? at::layer_norm(x, shape, weights.weight, weights.bias, weights.eps)
             : at::rms_norm(x, shape, weights.weight, weights.eps);
}

AddedNorm add_norm(const at::Tensor& x, const at::Tensor& delta, const NormWeights& weights) {
  if (can_fuse_norm(x, delta, weights)) {
    const variable_list outputs =
        FusedNorm::apply(x, delta, weights.weight, maybe_tensor(weights.bias), weights.eps);
    return {outputs[0], outputs[1]};
  }
  const at::Tensor sum = x + delta;
  return {sum, norm(sum, weights)};
}

}  // namespace stoker::model
