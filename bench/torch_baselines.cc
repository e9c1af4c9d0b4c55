#include "bench/torch_baselines.h"

#include "bench/python_baseline.h"

namespace stoker::bench {

Result<std::vector<Baseline>> torch_baselines(const TorchTraining& training,
                                              const Options& options) {
  std::vector<Baseline> baselines;
  const auto python = find_named_python();
  if (!python) return baselines;
  for (const bool compiled : {false, true}) {
    if (compiled && options.quick) continue;
    const std::string name = compiled ? "torch.compile" : "eager PyTorch";
    const auto baseline =
        find_python_baseline(training.bench + ", " + name, *python, training.script,
                             {compiled ? "compiled" : "eager", training.setup});
    if (!baseline) continue;
    if (static_cast<int64_t>(baseline->greeting()) != training.parameters)
      return Status(StatusCode::kMismatch, name + " has " + std::to_string(baseline->greeting()) +
                                               " parameters and buffers, stoker has " +
                                               std::to_string(training.parameters));
    baselines.push_back({name, [baseline, seconds = std::to_string(options.seconds)] {
                           return baseline->request(seconds);
                         }});
  }
  return baselines;
}

}  // namespace stoker::bench
