// stoker-bench-device: how many training steps a second a device takes, fed by a ring as stokerd is;
// with STOKER_PYTHON set to a Python that has PyTorch, beside eager PyTorch and torch.compile.
// STOKER_BENCH_DEVICE names the device: cuda (the default), cuda:1, cpu.
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "bench/benchmark.h"
#include "bench/device_training.h"
#include "bench/options.h"
#include "bench/python_peer.h"

namespace stoker::bench {
namespace {

std::string named_device() {
  const char* const device = std::getenv("STOKER_BENCH_DEVICE");
  return device != nullptr && *device != '\0' ? device : "cuda";
}

// Nothing where it cannot be had, which is said.
Result<std::optional<Peer>> maybe_peer(const DeviceSetup& setup, bool compiled,
                                       const DeviceTraining& training, const Options& options) {
  const auto python = maybe_named_python();
  if (!python) return std::optional<Peer>();
  const std::string name = compiled ? "torch.compile" : "eager PyTorch";
  const auto peer =
      maybe_python_peer("device-" + setup.training.name + ", " + name, *python, "device_peer.py",
                        {compiled ? "compiled" : "eager", to_json(setup)});
  if (!peer) return std::optional<Peer>();
  if (static_cast<int64_t>(peer->greeting()) != training.parameters())
    return Status(Code::kMismatch, name + " has " + std::to_string(peer->greeting()) +
                                       " parameters and buffers, ours " +
                                       std::to_string(training.parameters()));
  return std::optional(Peer{name,
                            [peer, seconds = std::to_string(options.seconds),
                             units = static_cast<double>(setup.units)]() -> Result<double> {
                              STOKER_ASSIGN_OR_RETURN(const double steps, peer->ask(seconds));
                              return steps * units;
                            }});
}

Benchmark steps_of(const DeviceSetup& setup) {
  const auto prepare = [setup](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto training, DeviceTraining::create(setup));
    Trial trial{setup.training.name + " of " + std::to_string(training->parameters()) +
                    " numbers, batch " + std::to_string(setup.training.batch) + ", " +
                    setup.train.precision + ", " + setup.train.device,
                setup.unit + "/s",
                [=, time = options.run_time()]() -> Result<double> {
                  STOKER_ASSIGN_OR_RETURN(const double steps, training->run(time));
                  return steps * static_cast<double>(setup.units);
                },
                {}};
    for (const bool compiled : {false, true}) {
      if (compiled && options.quick) continue;  // compiling takes half a minute
      STOKER_ASSIGN_OR_RETURN(auto peer, maybe_peer(setup, compiled, *training, options));
      if (peer) trial.peers.push_back(*std::move(peer));
    }
    return std::vector{std::move(trial)};
  };
  return {"device-" + setup.training.name,
          "training steps on " + setup.train.device + " (peers: set STOKER_PYTHON)", prepare};
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = maybe_parse(argc, argv, exit_code);
  if (!options) return exit_code;
  std::vector<Benchmark> benchmarks;
  for (const DeviceSetup& setup : device_setups(options->quick, named_device()))
    benchmarks.push_back(steps_of(setup));
  return run_all(benchmarks, *options);
}
