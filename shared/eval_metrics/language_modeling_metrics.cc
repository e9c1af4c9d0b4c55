#include "shared/eval_metrics/language_modeling_metrics.h"

#include <cmath>

namespace stoker::eval_metrics {

void LanguageModelingMetrics::add(std::span<const float> losses, std::span<const int64_t> targets,
                                  std::span<const int64_t> predictions) {
  for (size_t i = 0; i < losses.size(); ++i) {
    loss_ += static_cast<double>(losses[i]);
    correct_ += targets[i] == predictions[i] ? 1 : 0;
  }
  tokens_ += losses.size();
}

EvalReport LanguageModelingMetrics::report() const {
  const auto tokens = static_cast<double>(tokens_);
  const double loss = loss_ / tokens;
  EvalReport report;
  report.metrics = {{"loss", loss},
                    {bytes_ ? "bits_per_byte" : "bits_per_token", loss / std::log(2.0)},
                    {"perplexity", std::exp(loss)},
                    {"accuracy", static_cast<double>(correct_) / tokens}};
  return report;
}

}  // namespace stoker::eval_metrics
