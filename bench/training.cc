#include "bench/training.h"

#include <exception>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include "bench/stopwatch.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/train_step.h"
#include "shared/model/model.h"
#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::bench {
namespace {

constexpr int kWarmUpSteps = 3;
constexpr double kLearningRate = 3e-4;

// Small numbers that every element type holds, and that are good as tokens and as labels.
void fill(const TensorSpec& spec, uint64_t limit, std::span<std::byte> bytes) {
  uint64_t state = 1;
  const size_t width = dtype_bytes(spec.dtype);
  for (size_t at = 0; at < bytes.size(); at += width) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[at] = static_cast<std::byte>((state >> 33) % limit);
  }
}

class RunningTraining final : public Training {
 public:
  RunningTraining(const TrainingSetup& setup, model::ModelPtr model,
                  std::unique_ptr<task::Task> task, std::unique_ptr<train::Optimizer> optimizer)
      : model_(std::move(model)),
        task_(std::move(task)),
        optimizer_(std::move(optimizer)),
        step_(*model_, *task_, *optimizer_, 1, false),
        layout_(setup.sample, setup.batch),
        slot_(layout_.slot_bytes()) {
    for (size_t i = 0; i < setup.sample.size(); ++i) {
      const bool holds_classes = setup.sample[i].name != "input";
      fill(setup.sample[i], holds_classes ? setup.classes : 256,
           std::span(slot_).subspan(layout_.offset(i),
                                    setup.sample[i].bytes() * static_cast<size_t>(setup.batch)));
    }
  }

  Result<double> run(std::chrono::nanoseconds time) override {
    try {
      for (int i = 0; i < kWarmUpSteps; ++i) take_step();
      const Stopwatch watch;
      uint64_t steps = 0;
      for (; steps == 0 || watch.elapsed() < time; ++steps) take_step();
      return static_cast<double>(steps) / watch.seconds();
    } catch (const std::exception& error) {
      return Status(Code::kInternal, std::string("training: ") + error.what());
    }
  }

  int64_t parameters() const override {
    int64_t count = 0;
    for (const auto& [name, tensor] : model::named_tensors(*model_)) count += tensor.numel();
    return count;
  }

 private:
  void take_step() {
    step_.add(train::batch_tensors(layout_, slot_, c10::Device(c10::kCPU)));
    (void)step_.finish(kLearningRate);
  }

  model::ModelPtr model_;
  std::unique_ptr<task::Task> task_;
  std::unique_ptr<train::Optimizer> optimizer_;
  train::TrainStep step_;
  ring::BatchLayout layout_;
  std::vector<std::byte> slot_;
};

}  // namespace

TrainingSetup gpt_setup(bool tiny) {
  TrainingSetup setup{.model = {.kind = config::ModelKind::kGpt},
                      .task = {.kind = config::TaskKind::kLanguageModel},
                      .classes = 256,
                      .batch = tiny ? 2u : 16u};
  if (tiny) {
    setup.model.layers = 2;
    setup.model.width = 32;
    setup.model.heads = 2;
    setup.model.context = 16;
  }
  setup.sample = {{.name = "tokens", .dtype = DType::kU8, .shape = {setup.model.context + 1}}};
  return setup;
}

TrainingSetup lenet_setup(bool tiny) {
  return {.model = {.kind = config::ModelKind::kLenet},
          .task = {.kind = config::TaskKind::kClassification},
          .sample = {{.name = "input", .dtype = DType::kU8, .shape = {1, 28, 28}},
                     {.name = "label", .dtype = DType::kI64, .shape = {}}},
          .classes = 10,
          .batch = tiny ? 2u : 64u};
}

Result<std::shared_ptr<Training>> Training::create(const TrainingSetup& setup) {
  STOKER_ASSIGN_OR_RETURN(auto model, model::make_model(setup.model, setup.sample, setup.classes));
  STOKER_ASSIGN_OR_RETURN(auto task, task::make_task(setup.task, setup.sample, setup.classes));
  model::NamedTensors parameters;
  for (const auto& item : model->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  STOKER_ASSIGN_OR_RETURN(auto optimizer, train::Optimizer::create({}, parameters));
  model->train();
  return std::shared_ptr<Training>(std::make_shared<RunningTraining>(
      setup, std::move(model), std::move(task), std::move(optimizer)));
}

int training_threads() { return at::get_num_threads(); }

}  // namespace stoker::bench
