#include "shared/model/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/fused_kernels.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool can_fuse_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return bf16_kernels(gate.device()).swiglu != nullptr && gate.sizes() == up.sizes() &&
         has_kernel_layout(gate, at::kBFloat16) && has_kernel_layout(up, at::kBFloat16);
}

struct FusedSwiglu : torch::autograd::Function<FusedSwiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    at::Tensor output = at::empty_like(gate);
    fused_kernels(gate.device())
        .swiglu({.gate = kernel_pointer<Bf16>(gate),
                 .up = kernel_pointer<Bf16>(up),
                 .output = kernel_pointer<Bf16>(output),
                 .size = gate.numel()});
    context->save_for_backward({gate, up});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor of_output = with_kernel_layout(gradients[0], at::kBFloat16);
    const at::Tensor of_gate = at::empty_like(gate), of_up = at::empty_like(up);
    fused_kernels(gate.device())
        .swiglu_backward({.gate = kernel_pointer<Bf16>(gate),
                          .up = kernel_pointer<Bf16>(up),
                          .output_gradient = kernel_pointer<Bf16>(of_output),
                          .gate_gradient = kernel_pointer<Bf16>(of_gate),
                          .up_gradient = kernel_pointer<Bf16>(of_up),
                          .size = gate.numel()});
    return {of_gate, of_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  if (can_fuse_swiglu(gate, up)) return FusedSwiglu::apply(gate, up);
  return at::silu(gate) * up;
}

}  // namespace stoker::model
