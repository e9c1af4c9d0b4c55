// ParityCase: what is compared with PyTorch; the same cases as in cases.py.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"
#include "shared/config/model_config.h"
#include "shared/config/training_config.h"

namespace stoker::parity {

inline constexpr uint64_t kSeed = 7;
inline constexpr uint64_t kSteps = 10;

struct ParityCase {
  std::string name;
  config::ModelConfig model;
  config::TaskConfig task;
  std::optional<config::Normalize> normalize = {};  // of pictures
  config::OptimizerConfig optimizer;
  config::TrainConfig train = {};  // max_grad_norm
  config::SchedulerConfig schedule;
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;
  int64_t kept = 256;  // elements of each tensor that the golden file holds
  // What is 0 but for rounding: the gradient of a bias that a batch normalisation takes out again.
  double nothing = 1e-9;
  // What one ReLU changes in the weights after ten steps, if its input is so near 0 that rounding,
  // which differs between processors, decides whether it passes.
  double one_relu = 0;
};
// For GoogleTest's messages.
inline void PrintTo(const ParityCase& parity_case, std::ostream* out) { *out << parity_case.name; }

// Trained for ten steps.
std::vector<ParityCase> trained_cases();
// torchvision's models with its own settings, by its own names: what published weights are loaded
// into.
std::vector<ParityCase> published_cases();
// Only made: the bytes of their initial weights are compared.
std::vector<ParityCase> initial_cases();

}  // namespace stoker::parity
