#include "shared/model/rope.h"

#include <algorithm>
#include <bit>
#include <numbers>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "shared/model/fused_kernels.h"

namespace stoker::model {
namespace {

// As in Llama 3.1: periods of up to original / high_freq_factor tokens are kept, those from original
// / low_freq_factor are extended by the factor, and those between are interpolated.
at::Tensor scale_as_llama3(const at::Tensor& frequencies, const config::RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  // Reciprocals, as Python divides a number by a tensor, so that the bits are those of transformers.
  const at::Tensor periods = frequencies.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor is_long = periods > original / low, is_short = periods < original / high;
  const at::Tensor extended = at::where(is_long, frequencies / scaling.factor, frequencies);
  const at::Tensor smooth = (periods.reciprocal() * original - low) / (high - low);
  const at::Tensor between = (1 - smooth) * extended / scaling.factor + smooth * extended;
  return at::where(is_long.logical_or(is_short), extended, between);
}

at::Tensor make_frequencies(int64_t head_dim, double theta,
                            const std::optional<config::RopeScaling>& scaling) {
  const at::NoGradGuard no_grad;
  const at::Tensor exponents =
      at::arange(0, head_dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(head_dim);
  const at::Tensor frequencies = at::pow(at::Scalar(theta), exponents).reciprocal();
  if (!scaling) return frequencies;
  switch (scaling->rope_type) {
    case config::RopeType::kLinear:
      return frequencies / scaling->factor;
    case config::RopeType::kLlama3:
      break;
  }
  return scale_as_llama3(frequencies, *scaling);
}

}  // namespace

Rope::Rope(int64_t head_dim, double theta, const std::optional<config::RopeScaling>& scaling)
    : frequencies_(make_frequencies(head_dim, theta, scaling)) {}

RopeTables Rope::tables(int64_t time, const at::Tensor& like) {
  const at::NoGradGuard no_grad;
  auto found = std::ranges::find_if(tables_, [&](const RopeTables& tables) {
    return tables.cos.size(0) >= time && tables.cos.device() == like.device() &&
           tables.cos.scalar_type() == like.scalar_type();
  });
  if (found == tables_.end()) {
    // Powers of 2, so that growing lengths make few tables.
    const auto length = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(time)));
    const at::Tensor angles =
        at::outer(at::arange(length, at::TensorOptions().dtype(at::kFloat)), frequencies_);
    tables_.push_back({angles.cos().to(like.options()), angles.sin().to(like.options())});
    found = tables_.end() - 1;
  }
  return {found->cos.narrow(0, 0, time), found->sin.narrow(0, 0, time)};
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The layout of the values is any in which those of a head are contiguous; the result has the same.
bool can_fuse_rope(const at::Tensor& x, const RopeTables& tables) {
  return bf16_kernels(x.device()).rope != nullptr && x.scalar_type() == at::kBFloat16 &&
         x.dim() == 4 && x.stride(3) == 1 && tables.cos.dim() == 2 &&
         has_kernel_layout(tables.cos, at::kFloat) && has_kernel_layout(tables.sin, at::kFloat);
}

at::Tensor rotate_in_kernel(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                            bool is_inverse) {
  at::Tensor output = at::empty_like(x);
  RopeRotation rotation{.x = kernel_pointer<Bf16>(x),
                        .output = kernel_pointer<Bf16>(output),
                        .cos = kernel_pointer(cos),
                        .sin = kernel_pointer(sin),
                        .batch = x.size(0),
                        .heads = x.size(1),
                        .time = x.size(2),
                        .half = x.size(3) / 2,
                        .is_inverse = is_inverse};
  for (int i = 0; i < 3; ++i) {
    rotation.x_strides[i] = x.stride(i);
    rotation.output_strides[i] = output.stride(i);
  }
  fused_kernels(x.device()).rope(rotation);
  return output;
}

struct FusedRope : torch::autograd::Function<FusedRope> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotate_in_kernel(x, cos, sin, /*is_inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list tables = context->get_saved_variables();
    const at::Tensor gradient =
        gradients[0].stride(3) == 1 ? gradients[0] : gradients[0].contiguous();
    return {rotate_in_kernel(gradient, tables[0], tables[1], /*is_inverse=*/true), {}, {}};
  }
};

}  // namespace

at::Tensor rotate(const at::Tensor& x, const RopeTables& tables) {
  if (can_fuse_rope(x, tables)) return FusedRope::apply(x, tables.cos, tables.sin);
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  return at::cat(
      {first * tables.cos - second * tables.sin, second * tables.cos + first * tables.sin},
      /*dim=*/-1);
}

}  // namespace stoker::model
