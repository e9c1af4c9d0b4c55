// What an evaluator costs the training beside it: the median step with one at work, stopped, or
// killed again and again, against nobody beside it, and against a thread that only counts: what any
// neighbour costs on this machine, whose cores share caches, memory and clock. A checkpoint is saved
// each second in all of them. And what writing checkpoints without a pause costs, against saving
// none. Less is better.
#include <memory>

#include "bench/benches.h"
#include "bench/live_run.h"

namespace stoker::bench {

Benchmark evaluator() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto run, LiveRun::start(options.dir, options.quick));
    const auto step = [=, time = options.run_time()](Beside beside, Saving saving) -> Measure {
      return [=] { return run->median_step_ms(beside, saving, time); };
    };
    const Peer alone{"nobody beside it", step(Beside::kNobody, Saving::kEachSecond)};
    const Peer counter{"a thread that only counts", step(Beside::kCounter, Saving::kEachSecond)};
    std::vector<Trial> trials;
    for (const auto& [name, beside] : {std::pair{"at work", Beside::kEvaluator},
                                       {"at work, priority idle", Beside::kIdleEvaluator},
                                       {"stopped", Beside::kStoppedEvaluator},
                                       {"killed again and again", Beside::kKilledEvaluators}}) {
      trials.push_back({std::string("median step, evaluator ") + name,
                        "ms",
                        step(beside, Saving::kEachSecond),
                        {alone, counter}});
    }
    trials.push_back({"median step, checkpoints written without a pause",
                      "ms",
                      step(Beside::kNobody, Saving::kAlways),
                      {{"none written", step(Beside::kNobody, Saving::kNever)}}});
    return trials;
  };
  return {"evaluator", "milliseconds of a step while others evaluate, or checkpoints are written",
          prepare};
}

}  // namespace stoker::bench
