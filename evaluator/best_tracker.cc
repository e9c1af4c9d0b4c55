#include "evaluator/best_tracker.h"

#include <cmath>
#include <limits>

namespace stoker::evaluator {
namespace {

// Empty: the table does not have the metric.
std::optional<run::Monitor> parse_monitor(const std::string& name,
                                          const eval_metrics::MetricTable& table) {
  const size_t slash = name.find('/');
  run::Monitor monitor{.dataset = name.substr(0, slash), .metric = name.substr(slash + 1)};
  const auto* const definition = table.find(monitor.metric);
  if (definition == nullptr) return std::nullopt;
  monitor.direction = definition->direction;
  return monitor;
}

}  // namespace

void BestTracker::restore(const run::BestCheckpoint& best) {
  const std::string name = run::Monitor{best.dataset, best.metric}.to_text();
  for (const run::BestValue& point : best.history) add_point(histories_[name], point);
  add_point(histories_[name], {best.value, best.step, best.manifest_sha256});
  for (const auto& [other, point] : best.metrics) add_point(histories_[other], point);
}

void BestTracker::add(uint64_t step, const std::string& manifest_sha256, const std::string& dataset,
                      const run::MetricValues& metrics) {
  for (const auto& [name, value] : metrics)
    add_point(histories_[run::Monitor{dataset, name}.to_text()], {value, step, manifest_sha256});
}

void BestTracker::add_point(MetricHistory& track, const run::BestValue& point) {
  if (const auto known = track.by_step.find(point.step); known != track.by_step.end()) {
    run::BestValue& previous = track.points[known->second];
    if (previous.manifest_sha256 == point.manifest_sha256) {
      previous.value = point.value;
      return;
    }
    previous.value = std::numeric_limits<double>::quiet_NaN();
  }
  track.by_step[point.step] = track.points.size();
  track.points.push_back(point);
}

std::vector<run::BestValue> BestTracker::improvements(const MetricHistory& track,
                                                      const run::Monitor& monitor) {
  std::vector<run::BestValue> improved;
  for (const run::BestValue& point : track.points) {
    if (!std::isfinite(point.value)) continue;
    if (improved.empty() || monitor.is_better(point.value, improved.back().value))
      improved.push_back(point);
  }
  return improved;
}

std::optional<run::BestCheckpoint> BestTracker::find_best() const {
  const auto monitored = histories_.find(monitor_.to_text());
  if (monitored == histories_.end()) return std::nullopt;
  run::BestCheckpoint best{.dataset = monitor_.dataset, .metric = monitor_.metric};
  best.history = improvements(monitored->second, monitor_);
  if (best.history.empty()) return std::nullopt;
  const run::BestValue& last = best.history.back();
  best.value = last.value;
  best.step = last.step;
  best.manifest_sha256 = last.manifest_sha256;
  for (const auto& [name, track] : histories_) {
    const auto monitor = parse_monitor(name, table_);
    if (!monitor) continue;
    const auto improved = improvements(track, *monitor);
    if (!improved.empty()) best.metrics.emplace(name, improved.back());
  }
  return best;
}

std::vector<run::MonitorValue> BestTracker::history(uint64_t step) const {
  std::vector<run::MonitorValue> points;
  const auto track = histories_.find(monitor_.to_text());
  if (track == histories_.end()) return points;
  for (const auto& [at, index] : track->second.by_step)
    if (at <= step) points.push_back({at, track->second.points[index].value});
  return points;
}

}  // namespace stoker::evaluator
