// stoker-bench-train: how many training steps a second this machine's CPU takes; with STOKER_PYTHON
// set to a Python that has PyTorch, against eager PyTorch with as many threads.
#include <cstdio>

#include "bench/benchmark.h"
#include "bench/options.h"
#include "bench/python_peer.h"
#include "bench/training.h"

namespace stoker::bench {
namespace {

std::vector<std::string> peer_arguments(const std::string& model, const TrainingSetup& setup) {
  std::vector<std::string> arguments{model};
  const std::pair<const char*, int64_t> numbers[] = {
      {"--batch", static_cast<int64_t>(setup.batch)},
      {"--classes", static_cast<int64_t>(setup.classes)},
      {"--context", setup.model.context},
      {"--heads", setup.model.heads},
      {"--layers", setup.model.layers},
      {"--threads", training_threads()},
      {"--width", setup.model.width}};
  for (const auto& [name, number] : numbers) {
    arguments.emplace_back(name);
    arguments.push_back(std::to_string(number));
  }
  return arguments;
}

// Without a Python that has PyTorch there is no peer; where one was named, it is said.
Status add_peer(const std::string& model, const TrainingSetup& setup, const Training& training,
                const Options& options, Trial& trial) {
  const auto python = maybe_named_python();
  if (!python) return {};
  const auto peer =
      maybe_python_peer("train-" + model, *python, "train_peer.py", peer_arguments(model, setup));
  if (!peer) return {};
  if (static_cast<int64_t>(peer->greeting()) != training.parameters())
    return Status(Code::kMismatch, "the peer's model has " + std::to_string(peer->greeting()) +
                                       " parameters, ours " +
                                       std::to_string(training.parameters()));
  trial.peers = {{"eager PyTorch", [peer, seconds = std::to_string(options.seconds)] {
                    return peer->ask(seconds);
                  }}};
  return {};
}

Benchmark train_steps(const std::string& model, TrainingSetup (*setup_of)(bool tiny)) {
  const auto prepare = [=](const Options& options) -> Result<std::vector<Trial>> {
    const TrainingSetup setup = setup_of(options.quick);
    STOKER_ASSIGN_OR_RETURN(const auto training, Training::create(setup));
    Trial trial{model + " of " + std::to_string(training->parameters()) + " parameters, batch " +
                    std::to_string(setup.batch) + ", " + std::to_string(training_threads()) +
                    " threads",
                "steps/s",
                [=, time = options.run_time()] { return training->run(time); },
                {}};
    STOKER_RETURN_IF_ERROR(add_peer(model, setup, *training, options, trial));
    return std::vector<Trial>{trial};
  };
  return {"train-" + model, "training steps a second on the CPU (peer: set STOKER_PYTHON)",
          prepare};
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = maybe_parse(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_all({train_steps("gpt", gpt_setup), train_steps("lenet", lenet_setup)}, *options);
}
