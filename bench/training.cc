#include "bench/training.h"

#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "bench/operation_time.h"
#include "bench/stopwatch.h"
#include "daemon/train/batch_view.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/train_step.h"
#include "shared/model/model.h"
#include "shared/ring/batch_layout.h"
#include "shared/task/task.h"

namespace stoker::bench {
namespace {

constexpr int kWarmUpSteps = 3;
constexpr double kLearningRate = 3e-4;

// Whole numbers below `limit`, that are good as tokens, as pixels and as labels; floats from -1 to 1.
void fill(const TensorSpec& spec, uint64_t limit, std::span<std::byte> bytes) {
  uint64_t state = 1;
  const size_t width = dtype_bytes(spec.dtype);
  for (size_t at = 0; at < bytes.size(); at += width) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (spec.dtype == DType::kF32) {
      const float number = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
      std::memcpy(&bytes[at], &number, sizeof number);
    } else {
      bytes[at] = static_cast<std::byte>((state >> 33) % limit);
    }
  }
}

class RunningTraining final : public Training {
 public:
  RunningTraining(const TrainingSetup& setup, int threads, model::ModelPtr model,
                  std::unique_ptr<task::Task> task, std::unique_ptr<train::Optimizer> optimizer)
      : threads_(threads),
        model_(std::move(model)),
        task_(std::move(task)),
        optimizer_(std::move(optimizer)),
        step_(*model_, *task_, *optimizer_, config_),
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
    STOKER_ASSIGN_OR_RETURN(const Count count, take_steps(time));
    return static_cast<double>(count.steps) / count.seconds;
  }

  Result<double> part_outside(std::chrono::nanoseconds time) override {
    const OperationTime inside;
    STOKER_RETURN_IF_ERROR(take_steps(std::chrono::nanoseconds(0)).status());  // warm
    const auto before = inside.total();
    STOKER_ASSIGN_OR_RETURN(const Count count, take_steps(time, /*warm_up=*/0));
    const std::chrono::duration<double> spent = inside.total() - before;
    return 1 - spent.count() / count.seconds;
  }

  int64_t parameters() const override {
    int64_t count = 0;
    for (const auto& [name, tensor] : model::named_tensors(*model_)) count += tensor.numel();
    return count;
  }

 private:
  struct Count {
    uint64_t steps = 0;
    double seconds = 0;
  };

  Result<Count> take_steps(std::chrono::nanoseconds time, int warm_up = kWarmUpSteps) {
    at::set_num_threads(threads_);
    at::globalContext().setFlushDenormal(true);  // a batch that never changes is soon learned
    try {
      for (int i = 0; i < warm_up; ++i) take_step();
      const Stopwatch watch;
      Count count;
      for (; count.steps == 0 || watch.elapsed() < time; ++count.steps) take_step();
      count.seconds = watch.seconds();
      return count;
    } catch (const std::exception& error) {
      return Status(Code::kInternal, std::string("training: ") + error.what());
    }
  }

  void take_step() {
    step_.add(train::batch_view(layout_, slot_.data(), c10::Device(c10::kCPU)));
    optimizer_->set_lr(kLearningRate);
    (void)step_.finish();
  }

  int threads_;
  const config::TrainConfig config_;
  model::ModelPtr model_;
  std::unique_ptr<task::Task> task_;
  std::unique_ptr<train::Optimizer> optimizer_;
  train::TrainStep step_;
  ring::BatchLayout layout_;
  std::vector<std::byte> slot_;
};

}  // namespace

Result<std::shared_ptr<Training>> Training::create(const TrainingSetup& setup, int threads) {
  STOKER_ASSIGN_OR_RETURN(auto model, model::make_model(setup.model, setup.sample, setup.classes));
  STOKER_ASSIGN_OR_RETURN(auto task, task::make_task(setup.task, setup.sample, setup.classes));
  model::NamedTensors parameters;
  for (const auto& item : model->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  STOKER_ASSIGN_OR_RETURN(auto optimizer, train::Optimizer::create({}, parameters));
  model->train();
  return std::shared_ptr<Training>(std::make_shared<RunningTraining>(
      setup, threads, std::move(model), std::move(task), std::move(optimizer)));
}

}  // namespace stoker::bench
