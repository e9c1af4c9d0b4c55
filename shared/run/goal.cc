#include "shared/run/goal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace stoker::run {

bool Goal::higher_is_better() const {
  constexpr auto kHigherIsBetter = std::to_array<std::string_view>(
      {"accuracy", "r2", "macro_precision", "macro_recall", "macro_f1", "micro_f1", "exact_match",
       "mean_average_precision"});
  return metric.starts_with("top") ||  // "top5_accuracy": eval.top_k decides the number
         std::ranges::find(kHigherIsBetter, metric) != kHigherIsBetter.end();
}

bool Goal::is_better(double value, double than, double min_delta) const {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return higher_is_better() ? value > than + min_delta : value < than - min_delta;
}

Goal goal_of(const config::EvalConfig& config) { return goal_of(config, config.monitor); }

Goal goal_of(const config::EvalConfig& config, const std::string& metric) {
  const std::string first = config.datasets.empty() ? "" : config.datasets.front();
  const size_t slash = metric.find('/');
  if (slash == std::string::npos) return {first, metric};
  return {metric.substr(0, slash), metric.substr(slash + 1)};
}

Result<double> value_of(const EvalResult& result, const Goal& goal) {
  std::string there;
  for (const SetResult& set : result.sets) {
    for (const auto& [name, value] : set.metrics) {
      if (set.set == goal.set && name == goal.metric) return value;
      there += (there.empty() ? "" : ", ") + Goal{set.set, name}.to_text();
    }
  }
  return Status(Code::kInvalidArgument,
                "eval.monitor: " + goal.to_text() + " does not exist; set it to one of " + there);
}

}  // namespace stoker::run
