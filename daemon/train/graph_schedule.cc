#include "daemon/train/graph_schedule.h"

#include <utility>

namespace stoker::train {

GraphSchedule::Way GraphSchedule::next(const Part& part) {
  if (!captures_) return Way::kPlain;
  if (graphs_.contains(part)) return Way::kReplay;
  const auto known = warmed_up_.find(part.shape);
  if (known == warmed_up_.end() && warmed_up_.size() == kMostShapes) return Way::kPlain;
  int& steps = known == warmed_up_.end() ? warmed_up_[part.shape] : known->second;
  if (steps >= kWarmUpSteps) return Way::kCapture;
  if (part.is_last) ++steps;
  return Way::kPlain;
}

void GraphSchedule::captured(const Part& part, std::unique_ptr<cuda::Graph> graph) {
  graphs_[part] = std::move(graph);
}

void GraphSchedule::give_up() {
  captures_ = false;
  graphs_.clear();
}

}  // namespace stoker::train
