#include "bench/training.h"

#include <exception>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "bench/operation_time.h"
#include "bench/stopwatch.h"
#include "bench/trained_model.h"
#include "daemon/train/batch_view.h"
#include "daemon/train/train_step.h"

namespace stoker::bench {
namespace {

constexpr int kWarmUpSteps = 3;

class RunningTraining final : public Training {
 public:
  RunningTraining(const TrainingSetup& setup, int threads, TrainedModel trained)
      : threads_(threads),
        trained_(std::move(trained)),
        step_(*trained_.model, *trained_.task, *trained_.optimizer, config_),
        layout_(setup.sample, setup.batch),
        slot_(layout_.slot_bytes()) {
    fill_batch(setup, layout_, slot_);
  }

  Result<double> run(std::chrono::nanoseconds time) override {
    STOKER_ASSIGN_OR_RETURN(const Count count, run_steps(time));
    return static_cast<double>(count.steps) / count.seconds;
  }

  Result<double> fraction_outside_operations(std::chrono::nanoseconds time) override {
    const OperationTime operations;
    STOKER_RETURN_IF_ERROR(run_steps(std::chrono::nanoseconds(0)).status());  // warm-up only
    const auto before = operations.total();
    STOKER_ASSIGN_OR_RETURN(const Count count, run_steps(time, /*warm_up=*/0));
    const std::chrono::duration<double> seconds_in_operations = operations.total() - before;
    return 1 - seconds_in_operations.count() / count.seconds;
  }

  int64_t parameters() const override { return trained_.parameters(); }

 private:
  struct Count {
    uint64_t steps = 0;
    double seconds = 0;
  };

  Result<Count> run_steps(std::chrono::nanoseconds time, int warm_up = kWarmUpSteps) {
    at::set_num_threads(threads_);
    at::globalContext().setFlushDenormal(true);  // constant batches soon give denormals
    try {
      for (int i = 0; i < warm_up; ++i) run_step();
      const Stopwatch watch;
      Count count;
      for (; count.steps == 0 || watch.elapsed() < time; ++count.steps) run_step();
      count.seconds = watch.seconds();
      return count;
    } catch (const std::exception& error) {
      return Status(StatusCode::kInternal, std::string("training: ") + error.what());
    }
  }

  void run_step() {
    step_.add(train::batch_view(layout_, slot_.data(), c10::Device(c10::kCPU)));
    trained_.optimizer->set_lr(kLearningRate);
    (void)step_.finish();
  }

  int threads_;
  const config::TrainConfig config_;
  TrainedModel trained_;
  train::TrainStep step_;
  ring::BatchLayout layout_;
  std::vector<std::byte> slot_;
};

}  // namespace

Result<std::shared_ptr<Training>> Training::create(const TrainingSetup& setup, int threads) {
  STOKER_ASSIGN_OR_RETURN(TrainedModel trained,
                          TrainedModel::create(setup, c10::Device(c10::kCPU)));
  return std::shared_ptr<Training>(
      std::make_shared<RunningTraining>(setup, threads, std::move(trained)));
}

}  // namespace stoker::bench
