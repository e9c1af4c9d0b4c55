// Effect of an evaluator on training: the median step time while an evaluator runs, is stopped, or
// is killed repeatedly, compared with no other load and with a busy loop, which shows the cost of
// any load on a machine whose cores share caches, memory and clock rate. A checkpoint is saved
// every second in all of these, and the trainer uses one CPU, so that the evaluator has its own. Also
// the cost of continuous checkpoint writing compared with none, and the effect of an evaluator on a
// trainer that uses all CPUs: the mean step time, because the evaluator works in bursts, which a
// median can hide. It needs runs that are longer than these bursts: --seconds 10.
// Lower is better.
#include <memory>

#include "bench/benches.h"
#include "bench/end_to_end_run.h"

namespace stoker::bench {

Benchmark evaluator() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto time = options.run_time();
    STOKER_ASSIGN_OR_RETURN(const auto run,
                            EndToEndRun::start(options.dir, options.quick, TrainerThreads::kOne));
    const auto step = [=](BackgroundLoad background, Saving saving) -> Measure {
      return [=] { return run->step_ms(background, saving, time); };
    };
    const Baseline no_load{"no other load", step(BackgroundLoad::kNone, Saving::kEachSecond)};
    const Baseline busy_loop{"a busy loop", step(BackgroundLoad::kBusyLoop, Saving::kEachSecond)};
    std::vector<Trial> trials;
    for (const auto& [name, background] :
         {std::pair{"running", BackgroundLoad::kEvaluator},
          {"running, priority idle", BackgroundLoad::kIdleEvaluator},
          {"stopped", BackgroundLoad::kStoppedEvaluator},
          {"killed repeatedly", BackgroundLoad::kKilledEvaluators}}) {
      trials.push_back({std::string("median step, evaluator ") + name,
                        "ms",
                        step(background, Saving::kEachSecond),
                        {no_load, busy_loop}});
    }
    trials.push_back({"median step, continuous checkpoint writing",
                      "ms",
                      step(BackgroundLoad::kNone, Saving::kAlways),
                      {{"no checkpoints", step(BackgroundLoad::kNone, Saving::kNever)}}});
    return trials;
  };
  return {"evaluator", "milliseconds per step while an evaluator runs or checkpoints are written",
          prepare};
}

Benchmark evaluator_without_cpu() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto run,
                            EndToEndRun::start(options.dir, options.quick, TrainerThreads::kAll));
    const auto step = [=, time = options.run_time()](BackgroundLoad background) -> Measure {
      return [=] { return run->step_ms(background, Saving::kEachSecond, time, StepTime::kMean); };
    };
    const Baseline no_load{"no other load", step(BackgroundLoad::kNone)};
    const Baseline busy_loop{"a busy loop", step(BackgroundLoad::kBusyLoop)};
    std::vector<Trial> trials;
    for (const auto& [priority, background] : {std::pair{"low", BackgroundLoad::kEvaluator},
                                               {"idle", BackgroundLoad::kIdleEvaluator},
                                               {"normal", BackgroundLoad::kNormalEvaluator}})
      trials.push_back({std::string("mean step, evaluator running, priority ") + priority,
                        "ms",
                        step(background),
                        {no_load, busy_loop}});
    return trials;
  };
  return {"evaluator-without-cpu",
          "milliseconds per step of a trainer on all CPUs while an evaluator runs", prepare};
}

}  // namespace stoker::bench
