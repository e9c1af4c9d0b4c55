#include "daemon/train/graph_schedule.h"

#include <algorithm>
#include <utility>

namespace stoker::train {

GraphSchedule::Mode GraphSchedule::next(const Part& part) {
  if (!captures_) return Mode::kPlain;
  if (graphs_.contains(part)) return Mode::kReplay;
  const auto known = warmed_up_.find(part.shape);
  if (known == warmed_up_.end() && warmed_up_.size() == kMaxShapes) return Mode::kPlain;
  int& steps = known == warmed_up_.end() ? warmed_up_[part.shape] : known->second;
  if (steps >= kWarmUpSteps) return is_agreed_ ? Mode::kCapture : Mode::kPlain;
  if (part.is_last) ++steps;
  return Mode::kPlain;
}

bool GraphSchedule::is_ready() const {
  return captures_ && std::ranges::any_of(warmed_up_, [](const auto& shape) {
           return shape.second >= kWarmUpSteps;
         });
}

void GraphSchedule::captured(const Part& part, std::unique_ptr<cuda::Graph> graph) {
  graphs_[part] = std::move(graph);
}

void GraphSchedule::give_up() {
  captures_ = false;
  graphs_.clear();
}

}  // namespace stoker::train
