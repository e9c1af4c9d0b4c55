// GraphSchedule: decides for each part of a step whether it runs eagerly, is captured or is
// replayed.
//
// The first steps of a shape run eagerly, because they select kernels and allocate memory. After
// that each part (a shape, an input buffer and the position in the step) is captured once and then
// replayed. Shapes beyond kMaxShapes always run eagerly, because each graph holds memory. One
// failed capture disables capturing: host work of a model that prevents a capture recurs in every
// step. In a group, captures start when agree() was called, and all parts of a micro-batch have the
// mode of the first, or after a failed capture run eagerly.
//
// Threads: owned by the trainer thread.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/cuda/device_queue.h"

namespace stoker::train {

class GraphSchedule {
 public:
  static constexpr int kWarmUpSteps = 3;
  static constexpr size_t kMaxShapes = 8;

  enum class Mode { kPlain, kCapture, kReplay };
  struct Part {
    std::string shape;
    size_t buffer = 0;
    bool is_first = true, is_last = true;  // position in its step
    int level = 0;                         // in the tree of the step
    int exchange = 0;                      // of the ranks of a group, which it follows; 0: none
    auto operator<=>(const Part&) const = default;
  };

  // With `captures` false, everything runs eagerly.
  explicit GraphSchedule(bool captures, bool awaits_agreement = false)
      : awaits_agreement_(awaits_agreement), captures_(captures), is_agreed_(!awaits_agreement) {}

  // The mode of the next part. A part with kPlain counts as run; kCapture must be followed by
  // captured() or give_up().
  Mode next(const Part& part);
  void captured(const Part& part, std::unique_ptr<cuda::Graph> graph);
  // Drops all graphs; their parts are captured again.
  void drop_graphs() { graphs_.clear(); }
  // Drops all graphs and starts again with eager steps, because the work is another one.
  void restart() {
    graphs_.clear();
    warmed_up_.clear();
    is_agreed_ = !awaits_agreement_;
  }
  // Whether a shape is warmed up.
  bool is_ready() const;
  // From now on, parts of such shapes are captured.
  void agree() { is_agreed_ = true; }
  // Drops all graphs and runs everything eagerly from now on.
  void give_up();
  bool has_given_up() const { return !captures_; }  // or never captured

  // Only if next() returned kReplay for `part`.
  cuda::Graph& graph(const Part& part) { return *graphs_.at(part); }
  size_t graphs() const { return graphs_.size(); }

 private:
  const bool awaits_agreement_;
  bool captures_;
  bool is_agreed_;
  // Eager steps by shape; at most kMaxShapes entries.
  std::map<std::string, int> warmed_up_;
  std::map<Part, std::unique_ptr<cuda::Graph>> graphs_;
};

}  // namespace stoker::train
