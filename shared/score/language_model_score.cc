#include "shared/score/language_model_score.h"

#include <cmath>

namespace stoker::score {

void LanguageModelScore::add(std::span<const float> losses, std::span<const int64_t> targets,
                             std::span<const int64_t> predictions) {
  for (size_t i = 0; i < losses.size(); ++i) {
    loss_ += static_cast<double>(losses[i]);
    right_ += targets[i] == predictions[i] ? 1 : 0;
  }
  tokens_ += losses.size();
}

Report LanguageModelScore::report() const {
  const auto tokens = static_cast<double>(tokens_);
  const double loss = loss_ / tokens;
  Report report;
  report.metrics = {{"loss", loss},
                    {bytes_ ? "bits_per_byte" : "bits_per_token", loss / std::log(2.0)},
                    {"perplexity", std::exp(loss)},
                    {"accuracy", static_cast<double>(right_) / tokens}};
  return report;
}

}  // namespace stoker::score
