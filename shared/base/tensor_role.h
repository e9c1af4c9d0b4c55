// TensorRole: what a tensor of a sample is. Data, models and tasks find the tensors that they need by
// role. A tensor's name determines its role, because the ring, where external producers write, has
// names only (docs/ring-layout.md).
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "shared/base/tensor_spec.h"

namespace stoker {

enum class TensorRole {
  kInput,      // an image, a vector, or a vector per step
  kTokens,     // the input of models with a vocabulary
  kLength,     // number of valid steps of a padded sequence
  kPositions,  // of each token in its document, for samples of several documents
  kLabel,      // one class
  kLabels,     // a class per step, or a sequence of classes
  kTarget,     // numbers
  kMask,       // U8: a class per pixel, 255 if it is ignored
  kReferences  // texts, one per line, that predicted texts are compared with
};

std::string tensor_name(TensorRole role);  // "input"
// nullopt: none of these, as a field of a module with its own loss, which can be named mask too if it is not U8.
std::optional<TensorRole> role_of(const TensorSpec& spec);

}  // namespace stoker
