// LossTrend: the smoothed training loss, and its lowest value at a checkpoint. The trigger
// checkpoint.save_on_loss_improvement uses both.
//
// An exponential moving average over reported records, each the mean over its steps, so that a
// single low record does not count as an improvement. The average is bias-corrected. With a
// required relative improvement of p, a run has at most log(first/lowest)/log(1/(1-p))
// improvements.
//
// Threads: a value; owned by the trainer thread. Part of the checkpoint.
#pragma once

#include <cmath>
#include <optional>

namespace stoker::train {

struct LossTrend {
  static constexpr double kMemory = 0.9;  // weight of the previous average at each record

  double sum = 0;
  double weight = 0;  // the value of `sum` if every loss were 1
  // Lowest mean at a checkpoint; before the first checkpoint, the mean after the first record.
  std::optional<double> maybe_base;

  double mean() const { return sum / weight; }
  bool operator==(const LossTrend&) const = default;

  // Ignores nonfinite values.
  void add(double loss) {
    if (!std::isfinite(loss)) return;
    sum = kMemory * sum + (1 - kMemory) * loss;
    weight = kMemory * weight + (1 - kMemory);
    if (!maybe_base) maybe_base = mean();
  }
  bool has_improved_by(double part) const {
    return maybe_base && mean() < *maybe_base - part * std::abs(*maybe_base);
  }
  void record_save() {
    if (maybe_base && mean() < *maybe_base) maybe_base = mean();
  }
};

}  // namespace stoker::train
