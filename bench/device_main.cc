// stoker-bench-device: training steps per second on a device, fed by a ring as in stokerd.
// STOKER_BENCH_DEVICE selects the device: cuda (default), cuda:1, cpu. STOKER_BENCH_FUSED_KERNELS=1 selects
// all fused kernels, or some by name ("adamw,norm"), and fails without them. The descriptions that --list prints are the arguments of
// device_baseline.py, which trains the same in PyTorch; gpu_check.sh runs it afterwards, because the
// device's memory may not be sufficient for both.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bench/benchmark.h"
#include "bench/device_training.h"
#include "bench/options.h"
#include "shared/base/status.h"

namespace stoker::bench {
namespace {

std::optional<config::DeviceConfig> device_from_environment() {
  const char* const device = std::getenv("STOKER_BENCH_DEVICE");
  return config::parse_device(device != nullptr && *device != '\0' ? device : "cuda");
}

// Throws std::invalid_argument for a name that is not a kernel's.
config::FusedKernelsConfig fused_kernels_from_environment() {
  const char* const names = std::getenv("STOKER_BENCH_FUSED_KERNELS");
  if (names == nullptr || *names == '\0') return {};
  if (std::string_view(names) == "1") return config::kAllFusedKernels;
  config::FusedKernelsConfig kernels;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto* const found =
        std::ranges::find(config::kFusedKernelSwitches, name, &config::FusedKernelSwitch::name);
    if (found == std::end(config::kFusedKernelSwitches)) throw std::invalid_argument(name);
    kernels.*found->is_enabled = true;
  }
  return kernels;
}

Benchmark training_benchmark(const DeviceSetup& setup) {
  const auto prepare = [setup](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto training, DeviceTraining::create(setup));
    const std::string embeddings =
        setup.embedding_parameters == 0
            ? ""
            : ", " + std::to_string(setup.embedding_parameters) + " of them embeddings";
    Trial trial{setup.training.name + " of " + std::to_string(training->parameters()) +
                    " parameters" + embeddings + ", batch " + std::to_string(setup.training.batch) +
                    ", " + std::string(config::to_string(setup.train.precision)) + ", " +
                    config::to_string(setup.train.device),
                setup.unit + "/s",
                [=, time = options.run_time()]() -> Result<double> {
                  STOKER_ASSIGN_OR_RETURN(const double steps, training->run(time));
                  return steps * static_cast<double>(setup.units);
                },
                {}};
    return std::vector{std::move(trial)};
  };
  return {"device-" + setup.training.name, to_json(setup), prepare};
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  std::vector<Benchmark> benchmarks;
  const auto device = device_from_environment();
  if (!device) {
    std::fputs("STOKER_BENCH_DEVICE must be auto, cpu, cuda or cuda:N\n", stderr);
    return static_cast<int>(stoker::ExitCode::kUsage);
  }
  stoker::config::FusedKernelsConfig fused_kernels;
  try {
    fused_kernels = fused_kernels_from_environment();
  } catch (const std::invalid_argument& name) {
    std::fprintf(stderr, "STOKER_BENCH_FUSED_KERNELS: there is no kernel '%s'; use 1 or some of",
                 name.what());
    for (const auto& each : stoker::config::kFusedKernelSwitches)
      std::fprintf(stderr, " %s", std::string(each.name).c_str());
    std::fputs(", separated by commas\n", stderr);
    return static_cast<int>(stoker::ExitCode::kUsage);
  }
  for (const DeviceSetup& setup : device_setups(options->quick, *device, fused_kernels))
    benchmarks.push_back(training_benchmark(setup));
  return run_all(benchmarks, *options);
}
