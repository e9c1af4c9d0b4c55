// LabelErrorRate: how far decoded sequences of labels are from those that they should be.
//
// The distance of two sequences is Levenshtein's: the fewest labels to put in, take out or replace
// that make one of the other. Sums are over all samples in their order, so however these are cut into
// batches, the figures are the same to the last bit.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>

#include "shared/eval_metrics/eval_report.h"

namespace stoker::eval_metrics {

class LabelErrorRate {
 public:
  void add(float loss, std::span<const int64_t> decoded, std::span<const int64_t> labels);
  // loss, the mean over samples; label_error_rate: distances together by labels together; exact_match:
  // part of the samples without an error.
  EvalReport report() const;

 private:
  double loss_ = 0;
  uint64_t samples_ = 0;
  uint64_t labels_ = 0;
  uint64_t errors_ = 0;
  uint64_t exact_ = 0;
};

// Time: the product of both lengths.
uint64_t edit_distance(std::span<const int64_t> one, std::span<const int64_t> other);

// What a best path, the likeliest class of each step, stands for: labels of which several in a row
// are one, without `blank`. Written over `path`, of which the front is returned.
std::span<const int64_t> collapse(std::span<int64_t> path, int64_t blank);

}  // namespace stoker::eval_metrics
