// GraphSchedule: which part of which step is done plainly, captured, or replayed.
//
// The first steps of a shape are done plainly: kernels are chosen and memory is found in them. Then
// each part (by shape, input buffer and place in its step) is captured once and replayed from then
// on. Shapes beyond kMaxShapes are always done plainly, because each graph holds memory. After one
// failure nothing is captured any more: what a model does on the host, it does in every step.
//
// Threads: a value of the trainer's thread.
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
    bool is_first = true, is_last = true;  // of its step
    auto operator<=>(const Part&) const = default;
  };

  // With false, everything is done plainly.
  explicit GraphSchedule(bool captures) : captures_(captures) {}

  // How to do the next part. A part that is plain counts as done; after kCapture comes captured() or
  // give_up().
  Mode next(const Part& part);
  void captured(const Part& part, std::unique_ptr<cuda::Graph> graph);
  // From now on everything is done plainly; the graphs there are are dropped.
  void give_up();

  cuda::Graph& graph(const Part& part) { return *graphs_.at(part); }  // where next() says kReplay
  size_t graphs() const { return graphs_.size(); }

 private:
  bool captures_;
  std::map<std::string, int>
      warmed_up_;  // steps done plainly, by shape; at most kMaxShapes of them
  std::map<Part, std::unique_ptr<cuda::Graph>> graphs_;
};

}  // namespace stoker::train
