// ParityCase: a training configuration that is compared with PyTorch; cases.py has the same cases.
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
inline constexpr uint64_t kScheduledSteps = 10;  // a case trains these or the first few of them

struct ParityCase {
  std::string name;
  config::ModelConfig model;
  config::TaskConfig task;
  std::optional<config::Normalize> normalize = {};  // of images
  config::OptimizerConfig optimizer;
  config::TrainConfig train = {};  // only max_grad_norm is used
  config::SchedulerConfig schedule;
  std::vector<TensorSpec> sample;
  uint64_t classes = 0;
  int64_t num_stored = 256;  // stored elements per tensor in the golden file
};
// Used by GoogleTest messages.
inline void PrintTo(const ParityCase& parity_case, std::ostream* out) { *out << parity_case.name; }

// Trained for as many steps as the golden file has losses.
std::vector<ParityCase> trained_cases();
// torchvision's models with its own settings and names, for which weights are published.
std::vector<ParityCase> published_cases();
// Built but not trained: the bytes of the initial weights are compared.
std::vector<ParityCase> initial_cases();

}  // namespace stoker::parity
