// Effect of an evaluator on training: the median step time while an evaluator runs, is stopped, or
// is killed repeatedly, compared with no other load and with a busy loop, which shows the cost of
// any load on a machine whose cores share caches, memory and clock rate. A checkpoint is saved
// every second in all of these. Also the cost of continuous checkpoint writing compared with none.
// Lower is better.
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
