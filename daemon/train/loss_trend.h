// LossTrend: the training loss, smoothed, and how low it was when a checkpoint was last taken: what
// checkpoint.save_on_loss_improvement goes by.
//
// An exponential mean over reported rows, each the mean over its steps, so that one lucky row does
// not count as an improvement; corrected for its beginning, when few rows have been seen. Whoever
// asks for improvements by a part p gets at most log(first/lowest)/log(1/(1-p)) of them in a run.
//
// Threads: a value of the trainer's thread; part of the checkpoint.
#pragma once

#include <cmath>
#include <optional>

namespace stoker::train {

struct LossTrend {
  static constexpr double kMemory = 0.9;  // of the rows before, at each row

  double sum = 0;
  double weight = 0;                 // what `sum` would be if all losses were 1
  std::optional<double> maybe_base;  // lowest mean at a checkpoint; before one, the first row's

  double mean() const { return sum / weight; }
  bool operator==(const LossTrend&) const = default;

  // What is not a finite number says nothing.
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
