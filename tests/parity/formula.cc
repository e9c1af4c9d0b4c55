#include "tests/parity/formula.h"

#include <cmath>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

namespace stoker::parity {
namespace {

constexpr uint64_t kMask = (uint64_t{1} << 31) - 1;
constexpr double kHalf = 1 << 30;

// A bijection of 31 bits: shift and multiply twice, then shift.
double noise_at(uint64_t position) {
  uint64_t bits = position & kMask;
  bits = ((bits ^ (bits >> 16)) * 0x45d9f3b) & kMask;
  bits = ((bits ^ (bits >> 16)) * 0x45d9f3b) & kMask;
  return static_cast<double>(bits ^ (bits >> 16)) / kHalf - 1;
}

// FNV-1a.
uint64_t name_hash(std::string_view name) {
  uint32_t hash = 2166136261;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 16777619;
  return hash;
}

}  // namespace

at::Tensor noise(uint64_t first, int64_t count) {
  at::Tensor values = at::empty({count}, at::TensorOptions().dtype(at::kDouble));
  auto* const data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) data[i] = noise_at(first + static_cast<uint64_t>(i));
  return values;
}

void set_weights(model::Model& model) {
  model::NamedTensors parameters;
  for (const auto& item : model.named_parameters())
    parameters.emplace_back(item.key(), item.value());
  set_tensors(parameters);
}

void set_tensors(const model::NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor values = noise(name_hash(name), tensor.numel()).view(tensor.sizes());
    if (tensor.dim() > 1)
      tensor.copy_(values * std::sqrt(6.0 / (static_cast<double>(tensor.numel()) /
                                             static_cast<double>(tensor.size(0)))));
    else
      tensor.copy_(values * 0.1 + (name.ends_with("bias") || name.ends_with("mean") ? 0.0 : 1.0));
  }
}

at::Tensor stored_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten().to(at::kDouble);
  return at::stack({flat.norm(), flat.dot(noise(0, flat.numel()))});
}

}  // namespace stoker::parity
