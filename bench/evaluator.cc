// What an evaluator costs the training beside it: the median step with one at work, stopped, or
// killed again and again, against nobody beside it, and against a thread that only counts: what any
// neighbour costs on this machine, whose cores share caches, memory and clock. A checkpoint is saved
// each second in all of them. And what writing checkpoints without a pause costs, against saving
// none. Less is better.
#include <memory>

#include "bench/benches.h"
#include "bench/end_to_end_run.h"

namespace stoker::bench {

Benchmark evaluator() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto run, EndToEndRun::start(options.dir, options.quick));
    const auto step = [=, time = options.run_time()](BackgroundLoad background,
                                                     Saving saving) -> Measure {
      return [=] { return run->median_step_ms(background, saving, time); };
    };
    const Baseline alone{"nobody beside it", step(BackgroundLoad::kNone, Saving::kEachSecond)};
    const Baseline counter{"a thread that only counts",
                           step(BackgroundLoad::kCounter, Saving::kEachSecond)};
    std::vector<Trial> trials;
    for (const auto& [name, background] :
         {std::pair{"at work", BackgroundLoad::kEvaluator},
          {"at work, priority idle", BackgroundLoad::kIdleEvaluator},
          {"stopped", BackgroundLoad::kStoppedEvaluator},
          {"killed again and again", BackgroundLoad::kKilledEvaluators}}) {
      trials.push_back({std::string("median step, evaluator ") + name,
                        "ms",
                        step(background, Saving::kEachSecond),
                        {alone, counter}});
    }
    trials.push_back({"median step, checkpoints written without a pause",
                      "ms",
                      step(BackgroundLoad::kNone, Saving::kAlways),
                      {{"none written", step(BackgroundLoad::kNone, Saving::kNever)}}});
    return trials;
  };
  return {"evaluator", "milliseconds of a step while others evaluate, or checkpoints are written",
          prepare};
}

}  // namespace stoker::bench
