// LanguageModelingMetrics: loss, bits, perplexity and accuracy of predicted tokens.
//
// Sums are in double and in the order of the tokens: however these are cut into batches, the
// figures are the same to the last bit.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>

#include "shared/eval_metrics/eval_report.h"

namespace stoker::eval_metrics {

class LanguageModelingMetrics {
 public:
  // `bytes`: a token is a byte, so that the bits of one are those of the other.
  explicit LanguageModelingMetrics(bool bytes) : bytes_(bytes) {}

  // A value a token each.
  void add(std::span<const float> losses, std::span<const int64_t> targets,
           std::span<const int64_t> predictions);
  EvalReport report() const;

 private:
  const bool bytes_;
  double loss_ = 0;
  uint64_t correct_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace stoker::eval_metrics
