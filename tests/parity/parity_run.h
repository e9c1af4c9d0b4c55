// ParityRun: a case trained with stoker's model, task, optimizer and scheduler on the batches of
// its golden file.
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

// Seeds the default generator and builds the model of the case.
Result<model::ModelPtr> make_seeded(const ParityCase& parity_case);

// Reads a tensor of the file into newly allocated memory.
Result<at::Tensor> read_tensor(const checkpoint::SafetensorsFile& file, const std::string& name);

struct ParityRun {
  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<train::Optimizer> optimizer;
  std::vector<task::Batch> batches;
  model::NamedTensors first_gradients;  // before clipping
  at::Tensor first_logits;
  std::vector<double> losses, norms, rates;  // per step
};

// Runs the steps of the golden file on one thread, or on as many as OMP_NUM_THREADS says.
Result<ParityRun> run_case(const ParityCase& parity_case,
                           const checkpoint::SafetensorsFile& golden);

}  // namespace stoker::parity
