#include "tests/twin/twin_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "daemon/train/schedule.h"
#include "shared/model/torch_dtype.h"
#include "shared/task/model_input.h"

namespace stoker::twin {
namespace {

Result<std::vector<task::Batch>> read_batches(const TwinCase& twin_case,
                                              const checkpoint::SafetensorsFile& golden) {
  std::vector<task::Batch> batches(2);
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const TensorSpec& spec : twin_case.sample) {
      const std::string name = "batch" + std::to_string(i) + "/" + spec.name;
      STOKER_ASSIGN_OR_RETURN(at::Tensor tensor, read_tensor(golden, name));
      batches[i].push_back(std::move(tensor));
    }
  }
  return batches;
}

const config::Normalize* normalize_of(const TwinCase& twin_case) {
  return twin_case.normalize ? &*twin_case.normalize : nullptr;
}

// The forward pass of the first step, seen from outside the task; by a model of its own, because
// batch statistics must be counted once a step.
Result<at::Tensor> first_logits(const TwinCase& twin_case, const task::Batch& batch) {
  const at::NoGradGuard no_grad;
  STOKER_ASSIGN_OR_RETURN(const auto model, make_seeded(twin_case));
  model->train();
  STOKER_ASSIGN_OR_RETURN(
      const auto input,
      task::find_model_input(normalize_of(twin_case), twin_case.sample, "of the twins"));
  if (twin_case.task.name() != config::TaskName::kLanguageModeling)
    return task::outputs_of(*model, batch, input);
  const at::Tensor tokens = task::values_of(batch, input);
  return model->forward(tokens.narrow(1, 0, tokens.size(1) - 1));
}

void train_step(TwinRun& run, const TwinCase& twin_case, uint64_t step) {
  const at::Tensor loss = run.task->loss(*run.model, run.batches[step % 2]);
  loss.backward();
  if (step == 0)
    for (const auto& item : run.model->named_parameters())
      run.first_gradients.emplace_back(item.key(), item.value().grad().clone());
  const double lr =
      train::learning_rate(twin_case.schedule, twin_case.optimizer.lr(), step, kSteps);
  run.norms.push_back(run.optimizer->step(lr).item<double>());
  run.losses.push_back(loss.item<double>());
  run.rates.push_back(lr);
  run.optimizer->zero_grad();
}

}  // namespace

Result<model::ModelPtr> make_seeded(const TwinCase& twin_case) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(kSeed);
  return model::make_model(twin_case.model, twin_case.sample, twin_case.classes);
}

Result<at::Tensor> read_tensor(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const TensorSpec* const spec = file.find(name);
  if (spec == nullptr) return Status(Code::kNotFound, name + " is not in the file");
  const at::Tensor tensor =
      at::empty(spec->shape, at::TensorOptions().dtype(model::scalar_type_of(spec->dtype)));
  STOKER_RETURN_IF_ERROR(
      file.read(name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  return tensor;
}

Result<TwinRun> run_case(const TwinCase& twin_case, const checkpoint::SafetensorsFile& golden) {
  at::set_num_threads(1);
  TwinRun run;
  STOKER_ASSIGN_OR_RETURN(run.model, make_seeded(twin_case));
  STOKER_ASSIGN_OR_RETURN(run.task, task::make_task(twin_case.task, normalize_of(twin_case),
                                                    twin_case.sample, twin_case.classes));
  STOKER_ASSIGN_OR_RETURN(run.batches, read_batches(twin_case, golden));
  model::NamedTensors parameters;
  for (const auto& item : run.model->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  STOKER_ASSIGN_OR_RETURN(
      run.optimizer, train::Optimizer::create(twin_case.optimizer, twin_case.train, parameters));
  STOKER_ASSIGN_OR_RETURN(run.first_logits, first_logits(twin_case, run.batches[0]));
  run.model->train();
  for (uint64_t step = 0; step < kSteps; ++step) train_step(run, twin_case, step);
  return run;
}

}  // namespace stoker::twin
