#include "shared/model/linear_cross_entropy.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/fused_kernels.h"
#include "shared/model/weight_copies.h"

namespace stoker::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRowAlignment = 8;  // elements of BF16 in 16 bytes

// What is computed for the rows of one chunk after the other.
struct LinearCrossEntropyPass {
  at::Tensor features, weight;                   // BF16
  at::Tensor labels;                             // I64
  at::Tensor scale;                              // F32 scalar: 1 / number of valid labels
  at::Tensor losses;                             // F32 [rows]
  at::Tensor feature_gradient, weight_gradient;  // BF16, F32; undefined: not needed

  void add_chunk(at::Tensor& memory, int64_t begin, int64_t rows, int64_t ignored_label) {
    const int64_t classes = weight.size(0);
    const at::Tensor chunk = features.narrow(0, begin, rows);
    at::Tensor logits = memory.narrow(0, 0, rows).narrow(1, 0, classes);
    at::mm_out(logits, chunk, weight.t());
    const bool needs_gradient = feature_gradient.defined() || weight_gradient.defined();
    fused_kernels(features.device())
        .cross_entropy({.logits = kernel_pointer<Bf16>(logits),
                        .labels = labels.const_data_ptr<int64_t>() + begin,
                        .losses = kernel_pointer(losses) + begin,
                        .gradient_scale = needs_gradient ? kernel_pointer(scale) : nullptr,
                        .rows = rows,
                        .classes = classes,
                        .row_stride = memory.stride(0),
                        .ignored_label = ignored_label});
    if (feature_gradient.defined()) {
      at::Tensor of_chunk = feature_gradient.narrow(0, begin, rows);
      at::mm_out(of_chunk, logits, weight);
    }
    // The sum over the chunks is in F32.
    if (weight_gradient.defined()) weight_gradient.add_(at::mm(logits.t(), chunk));
  }
};

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  // `weight_values`: the weight, or its copy in BF16. Without `has_backward` only the loss is computed.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& features,
                            const at::Tensor& weight, const at::Tensor& weight_values,
                            const at::Tensor& labels, int64_t ignored_label,
                            int64_t max_chunk_bytes, bool has_backward) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const int64_t rows = features.size(0), classes = weight.size(0);
    LinearCrossEntropyPass pass{.features = features.to(at::kBFloat16).contiguous(),
                                .weight = weight_values.to(at::kBFloat16).contiguous(),
                                .labels = labels.contiguous()};
    pass.scale = labels.ne(ignored_label).sum().clamp_min(1).to(at::kFloat).reciprocal();
    pass.losses = at::empty({rows}, features.options().dtype(at::kFloat));
    if (has_backward && features.requires_grad())
      pass.feature_gradient = at::empty_like(pass.features);
    if (has_backward && weight.requires_grad())
      pass.weight_gradient = at::zeros(weight.sizes(), weight.options().dtype(at::kFloat));
    const int64_t stride = (classes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
    const int64_t most =
        std::clamp<int64_t>(max_chunk_bytes / (stride * static_cast<int64_t>(sizeof(Bf16))), 1,
                            std::max<int64_t>(rows, 1));
    at::Tensor memory = at::empty({most, stride}, pass.features.options());
    for (int64_t begin = 0; begin < rows; begin += most)
      pass.add_chunk(memory, begin, std::min(most, rows - begin), ignored_label);
    context->save_for_backward({pass.feature_gradient, pass.weight_gradient});
    context->saved_data["features"] = features.scalar_type();
    context->saved_data["weight"] = weight.scalar_type();
    return pass.losses.sum() * pass.scale;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list of = context->get_saved_variables();
    // In F32: a factor such as 1/3 of a micro-batch would be rounded to BF16.
    const auto scaled = [&](const at::Tensor& gradient, const char* dtype) {
      if (!gradient.defined()) return gradient;
      return (gradient.to(at::kFloat) * gradients[0]).to(context->saved_data[dtype].toScalarType());
    };
    return {scaled(of[0], "features"), scaled(of[1], "weight"), {}, {}, {}, {}, {}};
  }
};

}  // namespace

bool has_linear_cross_entropy(c10::Device device) {
  return bf16_kernels(device).cross_entropy != nullptr;
}

at::Tensor linear_cross_entropy(const at::Tensor& features, const at::Tensor& weight,
                                const at::Tensor& labels, int64_t ignored_label,
                                int64_t max_chunk_bytes) {
  return LinearCrossEntropy::apply(features, weight, WeightCopies::or_weight(weight).detach(),
                                   labels, ignored_label, max_chunk_bytes,
                                   at::GradMode::is_enabled());
}

}  // namespace stoker::model
