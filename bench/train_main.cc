// stoker-bench-train: how many training steps a second this machine's CPU takes, with one thread and
// with two; with STOKER_PYTHON set to a Python that has PyTorch, beside eager PyTorch and
// torch.compile with as many threads.
#include <cstdio>
#include <optional>

#include "bench/benchmark.h"
#include "bench/options.h"
#include "bench/python_peer.h"
#include "bench/training.h"

namespace stoker::bench {
namespace {

constexpr int kThreads[] = {1, 2};

// Nothing where it cannot be had, which is said.
Result<std::optional<Peer>> maybe_peer(const TrainingSetup& setup, int threads, bool compiled,
                                       const Training& training, const Options& options) {
  const auto python = maybe_named_python();
  if (!python) return std::optional<Peer>();
  const std::string name = compiled ? "torch.compile" : "eager PyTorch";
  const auto peer = maybe_python_peer("step-" + setup.name + ", " + name, *python, "train_peer.py",
                                      {compiled ? "compiled" : "eager", to_json(setup, threads)});
  if (!peer) return std::optional<Peer>();
  if (static_cast<int64_t>(peer->greeting()) != training.parameters())
    return Status(Code::kMismatch, name + " has " + std::to_string(peer->greeting()) +
                                       " parameters and buffers, ours " +
                                       std::to_string(training.parameters()));
  return std::optional(
      Peer{name, [peer, seconds = std::to_string(options.seconds)] { return peer->ask(seconds); }});
}

Result<Trial> speed(const TrainingSetup& setup, int threads,
                    const std::shared_ptr<Training>& training, const Options& options) {
  Trial trial{setup.name + " of " + std::to_string(training->parameters()) + " numbers, batch " +
                  std::to_string(setup.batch) + ", threads " + std::to_string(threads),
              "steps/s",
              [=, time = options.run_time()] { return training->run(time); },
              {}};
  for (const bool compiled : {false, true}) {
    if (compiled && options.quick) continue;  // compiling takes half a minute
    STOKER_ASSIGN_OR_RETURN(auto peer, maybe_peer(setup, threads, compiled, *training, options));
    if (peer) trial.peers.push_back(*std::move(peer));
  }
  return trial;
}

Benchmark steps_of(const TrainingSetup& setup) {
  const auto prepare = [setup](const Options& options) -> Result<std::vector<Trial>> {
    std::vector<Trial> trials;
    for (const int threads : kThreads) {
      STOKER_ASSIGN_OR_RETURN(const auto training, Training::create(setup, threads));
      STOKER_ASSIGN_OR_RETURN(Trial trial, speed(setup, threads, training, options));
      trials.push_back(std::move(trial));
      trials.push_back({setup.name + ", threads " + std::to_string(threads) +
                            ", part of a step outside LibTorch's operations",
                        "1",
                        [=, time = options.run_time()] { return training->part_outside(time); },
                        {}});
    }
    return trials;
  };
  return {"step-" + setup.name, "training steps a second on the CPU (peers: set STOKER_PYTHON)",
          prepare};
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = maybe_parse(argc, argv, exit_code);
  if (!options) return exit_code;
  std::vector<Benchmark> benchmarks;
  for (const TrainingSetup& setup : training_setups(options->quick))
    benchmarks.push_back(steps_of(setup));
  return run_all(benchmarks, *options);
}
