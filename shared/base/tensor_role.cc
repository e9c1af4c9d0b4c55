#include "shared/base/tensor_role.h"

namespace stoker {

std::string tensor_name(TensorRole role) {
  switch (role) {
    case TensorRole::kInput:
      return "input";
    case TensorRole::kTokens:
      return "tokens";
    case TensorRole::kLength:
      return "length";
    case TensorRole::kPositions:
      return "position_ids";
    case TensorRole::kLabel:
      return "label";
    case TensorRole::kLabels:
      return "labels";
    case TensorRole::kTarget:
      return "target";
    case TensorRole::kMask:
      return "mask";
    case TensorRole::kReferences:
      return "references";
  }
  return "";
}

std::optional<TensorRole> role_of(const TensorSpec& spec) {
  for (const TensorRole role : {TensorRole::kInput, TensorRole::kTokens, TensorRole::kLength,
                                TensorRole::kPositions, TensorRole::kLabel, TensorRole::kLabels,
                                TensorRole::kTarget, TensorRole::kMask, TensorRole::kReferences})
    if (spec.name == tensor_name(role) && (role != TensorRole::kMask || spec.dtype == DType::kU8))
      return role;
  return std::nullopt;
}

}  // namespace stoker
