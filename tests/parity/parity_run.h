// ParityRun: one case trained by stoker's model, task, optimizer and schedule on the batches of its
// golden file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/train/optimizer.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/model/model.h"
#include "shared/task/task.h"
#include "tests/parity/parity_case.h"

namespace stoker::parity {

// Seeds the default generator and makes the case's model.
Result<model::ModelPtr> make_seeded(const ParityCase& parity_case);

// A tensor of the file, in memory of its own.
Result<at::Tensor> read_tensor(const checkpoint::SafetensorsFile& file, const std::string& name);

struct ParityRun {
  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<train::Optimizer> optimizer;
  std::vector<task::Batch> batches;
  model::NamedTensors first_gradients;  // before clipping
  at::Tensor first_logits;
  std::vector<double> losses, norms, rates;  // of each step
};

// Ten steps on one thread.
Result<ParityRun> run_case(const ParityCase& parity_case,
                           const checkpoint::SafetensorsFile& golden);

}  // namespace stoker::parity
