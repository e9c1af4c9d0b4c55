#include "shared/model/rope.h"

#include <algorithm>
#include <bit>
#include <numbers>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

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

at::Tensor rotate(const at::Tensor& x, const RopeTables& tables) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  return at::cat(
      {first * tables.cos - second * tables.sin, second * tables.cos + first * tables.sin},
      /*dim=*/-1);
}

}  // namespace stoker::model
