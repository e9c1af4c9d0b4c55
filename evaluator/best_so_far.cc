#include "evaluator/best_so_far.h"

#include <cmath>
#include <limits>

namespace stoker::evaluator {
namespace {

run::Goal goal_named(const std::string& name) {
  const size_t slash = name.find('/');
  return {name.substr(0, slash), name.substr(slash + 1)};
}

}  // namespace

void BestSoFar::remember(const run::Best& best) {
  const std::string name = run::Goal{best.set, best.metric}.to_text();
  for (const run::BestPoint& point : best.history) add_point(tracks_[name], point);
  add_point(tracks_[name], {best.value, best.step, best.manifest_sha256});
  for (const auto& [other, point] : best.metrics) add_point(tracks_[other], point);
}

void BestSoFar::add(uint64_t step, const std::string& manifest_sha256, const std::string& set,
                    const run::MetricValues& metrics) {
  for (const auto& [name, value] : metrics)
    add_point(tracks_[run::Goal{set, name}.to_text()], {value, step, manifest_sha256});
}

void BestSoFar::add_point(Track& track, const run::BestPoint& point) {
  if (const auto known = track.of_step.find(point.step); known != track.of_step.end()) {
    run::BestPoint& former = track.points[known->second];
    if (former.manifest_sha256 == point.manifest_sha256) return;
    former.value = std::numeric_limits<double>::quiet_NaN();
  }
  track.of_step[point.step] = track.points.size();
  track.points.push_back(point);
}

std::vector<run::BestPoint> BestSoFar::improvements(const Track& track, const run::Goal& goal) {
  std::vector<run::BestPoint> steps_up;
  for (const run::BestPoint& point : track.points) {
    if (!std::isfinite(point.value)) continue;
    if (steps_up.empty() || goal.is_better(point.value, steps_up.back().value))
      steps_up.push_back(point);
  }
  return steps_up;
}

std::optional<run::Best> BestSoFar::maybe_best() const {
  const auto of_goal = tracks_.find(goal_.to_text());
  if (of_goal == tracks_.end()) return std::nullopt;
  run::Best best{.set = goal_.set, .metric = goal_.metric};
  best.history = improvements(of_goal->second, goal_);
  if (best.history.empty()) return std::nullopt;
  const run::BestPoint& last = best.history.back();
  best.value = last.value;
  best.step = last.step;
  best.manifest_sha256 = last.manifest_sha256;
  for (const auto& [name, track] : tracks_) {
    const auto steps_up = improvements(track, goal_named(name));
    if (!steps_up.empty()) best.metrics.emplace(name, steps_up.back());
  }
  return best;
}

std::vector<run::GoalPoint> BestSoFar::history(uint64_t step) const {
  std::vector<run::GoalPoint> points;
  const auto track = tracks_.find(goal_.to_text());
  if (track == tracks_.end()) return points;
  for (const auto& [at, index] : track->second.of_step)
    if (at <= step) points.push_back({at, track->second.points[index].value});
  return points;
}

}  // namespace stoker::evaluator
