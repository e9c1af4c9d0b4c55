#include "bench/checkpoint_baselines.h"

#include "bench/python_baseline.h"

namespace stoker::bench {

std::vector<Baseline> checkpoint_baselines(const std::vector<std::string>& libraries, Until until,
                                           size_t bytes,
                                           const std::shared_ptr<ScratchFolder>& folder,
                                           const std::function<double(double)>& to_value) {
  std::vector<Baseline> baselines;
  const auto python = find_named_python();
  if (!python) return baselines;
  for (const std::string& library : libraries) {
    const auto baseline = find_python_baseline(
        "checkpoint, " + library, *python, "checkpoint_baseline.py",
        {library, until == Until::kDurable ? "durable" : "blocked", std::to_string(bytes)});
    if (!baseline) continue;
    const std::string name = library + (until == Until::kDurable ? " and fsync" : "");
    const std::string path = folder->file("baseline-" + library);
    baselines.push_back({name, [=]() -> Result<double> {
                           STOKER_ASSIGN_OR_RETURN(const double seconds, baseline->request(path));
                           return to_value(seconds);
                         }});
  }
  return baselines;
}

}  // namespace stoker::bench
