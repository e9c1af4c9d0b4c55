// stoker-bench-train: training steps per second on the CPU with one and two threads, and generated
// tokens per second. If STOKER_PYTHON is a Python with PyTorch, training by eager PyTorch and
// torch.compile is measured as well, with as many threads.
#include "bench/benchmark.h"
#include "bench/generation.h"
#include "bench/options.h"
#include "bench/torch_baselines.h"
#include "bench/training.h"
#include "shared/model/host_allocator.h"

namespace stoker::bench {
namespace {

constexpr int kThreads[] = {1, 2};

Result<Trial> step_rate(const TrainingSetup& setup, int threads,
                        const std::shared_ptr<Training>& training, const Options& options) {
  Trial trial{setup.name + " of " + std::to_string(training->parameters()) + " parameters, batch " +
                  std::to_string(setup.batch) + ", threads " + std::to_string(threads),
              "steps/s",
              [=, time = options.run_time()] { return training->run(time); },
              {}};
  STOKER_ASSIGN_OR_RETURN(trial.baselines, torch_baselines({.bench = "step-" + setup.name,
                                                            .script = "train_baseline.py",
                                                            .setup = to_json(setup, threads),
                                                            .parameters = training->parameters()},
                                                           options));
  return trial;
}

Benchmark training_benchmark(const TrainingSetup& setup) {
  const auto prepare = [setup](const Options& options) -> Result<std::vector<Trial>> {
    std::vector<Trial> trials;
    for (const int threads : kThreads) {
      if (options.quick && threads > 1) break;  // PyTorch takes seconds to start
      STOKER_ASSIGN_OR_RETURN(const auto training, Training::create(setup, threads));
      STOKER_ASSIGN_OR_RETURN(Trial trial, step_rate(setup, threads, training, options));
      trials.push_back(std::move(trial));
      trials.push_back(
          {setup.name + ", threads " + std::to_string(threads) +
               ", fraction of a step outside LibTorch's operations",
           "1",
           [=, time = options.run_time()] { return training->fraction_outside_operations(time); },
           {}});
    }
    return trials;
  };
  return {"step-" + setup.name,
          "training steps per second on the CPU (baselines: set STOKER_PYTHON)", prepare};
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  using namespace stoker::bench;
  stoker::model::install_host_allocator();  // as in stokerd
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  std::vector<Benchmark> benchmarks;
  for (const TrainingSetup& setup : training_setups(options->quick))
    benchmarks.push_back(training_benchmark(setup));
  benchmarks.push_back(generation_benchmark());
  return run_all(benchmarks, *options);
}
