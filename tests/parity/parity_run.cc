#include "tests/parity/parity_run.h"

#include <algorithm>
#include <cstdlib>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "daemon/train/schedule.h"
#include "shared/model/torch_dtype.h"
#include "shared/task/model_input.h"

namespace stoker::parity {
namespace {

Result<std::vector<task::Batch>> read_batches(const ParityCase& parity_case,
                                              const checkpoint::SafetensorsFile& golden) {
  std::vector<task::Batch> batches(2);
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const TensorSpec& spec : parity_case.sample) {
      const std::string name = "batch" + std::to_string(i) + "/" + spec.name;
      STOKER_ASSIGN_OR_RETURN(at::Tensor tensor, read_tensor(golden, name));
      batches[i].push_back(std::move(tensor));
    }
  }
  return batches;
}

const config::Normalize* normalize_of(const ParityCase& parity_case) {
  return parity_case.normalize ? &*parity_case.normalize : nullptr;
}

// The logits of the first step, which the task does not return. Uses a separate model, because
// batch statistics must be updated only once per step.
Result<at::Tensor> first_logits(const ParityCase& parity_case, const task::Batch& batch) {
  const at::NoGradGuard no_grad;
  STOKER_ASSIGN_OR_RETURN(const auto model, make_seeded(parity_case));
  model->train();
  STOKER_ASSIGN_OR_RETURN(
      const auto input,
      task::find_model_input(normalize_of(parity_case), parity_case.sample, "of the parity cases"));
  if (parity_case.task.name() != config::TaskName::kLanguageModeling)
    return task::model_outputs(*model, batch, input);
  const at::Tensor tokens = task::input_values(batch, input);
  return model->forward(tokens.narrow(1, 0, tokens.size(1) - 1));
}

void train_step(ParityRun& run, const ParityCase& parity_case, uint64_t step) {
  const at::Tensor loss = run.task->loss(*run.model, run.batches[step % 2]);
  loss.backward();
  if (step == 0)
    for (const auto& item : run.model->named_parameters())
      run.first_gradients.emplace_back(item.key(), item.value().grad().clone());
  const double lr =
      train::learning_rate(parity_case.schedule, parity_case.optimizer.lr(), step, kScheduledSteps);
  run.norms.push_back(run.optimizer->step(lr).item<double>());
  run.losses.push_back(loss.item<double>());
  run.rates.push_back(lr);
  run.optimizer->zero_grad();
}

}  // namespace

Result<model::ModelPtr> make_seeded(const ParityCase& parity_case) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(kSeed);
  return model::make_model(parity_case.model, parity_case.sample, parity_case.classes);
}

Result<at::Tensor> read_tensor(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const TensorSpec* const spec = file.find(name);
  if (spec == nullptr) return Status(StatusCode::kNotFound, name + " is not in the file");
  const at::Tensor tensor =
      at::empty(spec->shape, at::TensorOptions().dtype(model::to_scalar_type(spec->dtype)));
  STOKER_RETURN_IF_ERROR(
      file.read(name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  return tensor;
}

Result<ParityRun> run_case(const ParityCase& parity_case,
                           const checkpoint::SafetensorsFile& golden) {
  // run_as_processor.sh sets several.
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  at::set_num_threads(threads == nullptr ? 1 : std::max(1, std::atoi(threads)));
  ParityRun run;
  STOKER_ASSIGN_OR_RETURN(run.model, make_seeded(parity_case));
  STOKER_ASSIGN_OR_RETURN(run.task, task::make_task(parity_case.task, normalize_of(parity_case),
                                                    parity_case.sample, parity_case.classes));
  STOKER_ASSIGN_OR_RETURN(run.batches, read_batches(parity_case, golden));
  model::NamedTensors parameters;
  for (const auto& item : run.model->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  STOKER_ASSIGN_OR_RETURN(run.optimizer, train::Optimizer::create(parity_case.optimizer,
                                                                  parity_case.train, parameters));
  STOKER_ASSIGN_OR_RETURN(run.first_logits, first_logits(parity_case, run.batches[0]));
  run.model->train();
  STOKER_ASSIGN_OR_RETURN(const at::Tensor losses, read_tensor(golden, "losses"));
  for (int64_t step = 0; step < losses.numel(); ++step)
    train_step(run, parity_case, static_cast<uint64_t>(step));
  return run;
}

}  // namespace stoker::parity
