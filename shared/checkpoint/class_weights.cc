#include "shared/checkpoint/class_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {
namespace {

constexpr int64_t kMaxClasses = 1'000'000;  // as many as a data set may have

bool is_weight(double number) { return std::isfinite(number) && number >= 0; }

}  // namespace

Result<std::vector<double>> read_class_weights(const VerifiedCheckpoint& saved) {
  STOKER_ASSIGN_OR_RETURN(const auto state, saved.open_tensors("trainer_state.safetensors"));
  const TensorSpec* const found = state->find(kClassWeights);
  if (found == nullptr) return std::vector<double>();
  const auto corrupt = [&saved](const std::string& what) {
    return Status(StatusCode::kCorrupt, saved.path() + "/trainer_state.safetensors: " + what);
  };
  if (found->dtype != DType::kF64 || found->shape.size() != 1 || found->shape[0] > kMaxClasses)
    return corrupt(to_string(*found) + " is not F64 [classes]");
  std::vector<double> weights(static_cast<size_t>(found->shape[0]));
  STOKER_RETURN_IF_ERROR(state->read(kClassWeights, std::as_writable_bytes(std::span(weights))));
  if (!std::ranges::all_of(weights, is_weight))
    return corrupt(std::string(kClassWeights) + " holds what is no weight");
  return weights;
}

}  // namespace stoker::checkpoint
