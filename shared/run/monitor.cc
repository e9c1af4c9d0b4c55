#include "shared/run/monitor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace stoker::run {

bool Monitor::higher_is_better() const {
  constexpr auto kHigherIsBetter = std::to_array<std::string_view>(
      {"accuracy", "r2", "macro_precision", "macro_recall", "macro_f1", "micro_f1", "exact_match",
       "mean_average_precision"});
  return metric.starts_with("top") ||  // "top5_accuracy": eval.top_k decides the number
         std::ranges::find(kHigherIsBetter, metric) != kHigherIsBetter.end();
}

bool Monitor::is_better(double value, double than, double min_delta) const {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return higher_is_better() ? value > than + min_delta : value < than - min_delta;
}

Monitor make_monitor(const config::EvalConfig& config) {
  return make_monitor(config, config.monitor);
}

Monitor make_monitor(const config::EvalConfig& config, const std::string& metric) {
  const std::string first = config.datasets.empty() ? "" : config.datasets.front();
  const size_t slash = metric.find('/');
  if (slash == std::string::npos) return {first, metric};
  return {metric.substr(0, slash), metric.substr(slash + 1)};
}

Result<double> monitored_value(const EvalResult& result, const Monitor& monitor) {
  std::string there;
  for (const DatasetResult& dataset : result.datasets) {
    for (const auto& [name, value] : dataset.metrics) {
      if (dataset.dataset == monitor.dataset && name == monitor.metric) return value;
      there += (there.empty() ? "" : ", ") + Monitor{dataset.dataset, name}.to_text();
    }
  }
  return Status(StatusCode::kInvalidArgument, "eval.monitor: " + monitor.to_text() +
                                                  " does not exist; set it to one of " + there);
}

}  // namespace stoker::run
