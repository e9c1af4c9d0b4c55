#include "shared/metrics/eval_metrics.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>

namespace stoker::metrics {
namespace {

constexpr std::array<std::string_view, 6> kOwnFields{
    "step", "dataset", "num_samples", "manifest_sha256", "duration_seconds", "wall_time"};

bool is_own(std::string_view name) {
  return std::find(kOwnFields.begin(), kOwnFields.end(), name) != kOwnFields.end();
}

Status missing(std::string_view name) {
  return Status(StatusCode::kCorrupt,
                "field \"" + std::string(name) + "\" is missing or has the wrong type");
}

}  // namespace

MetricsRecord to_record(const EvalMetrics& record) {
  MetricsRecord out;
  out.add("step", record.step).add("dataset", std::string_view(record.dataset));
  for (const auto& [name, value] : record.metrics) {
    assert(!is_own(name) && "a metric that is named like a field of every row");
    out.add(name, value);
  }
  out.add("num_samples", record.samples)
      .add("manifest_sha256", std::string_view(record.manifest_sha256))
      .add("duration_seconds", record.seconds)
      .add("wall_time", std::string_view(record.wall));
  return out;
}

Result<EvalMetrics> eval_metrics_from(const MetricsRecord& record) {
  EvalMetrics out;
  const auto step = record.find_count("step");
  const auto dataset = record.find_text("dataset");
  const auto samples = record.find_count("num_samples");
  const auto manifest = record.find_text("manifest_sha256");
  const auto seconds = record.find_number("duration_seconds");
  const auto wall = record.find_text("wall_time");
  if (!step) return missing("step");
  if (!dataset) return missing("dataset");
  if (!samples) return missing("num_samples");
  if (!manifest) return missing("manifest_sha256");
  if (!seconds) return missing("duration_seconds");
  if (!wall) return missing("wall_time");
  out.step = *step;
  out.dataset = *dataset;
  out.samples = *samples;
  out.manifest_sha256 = *manifest;
  out.seconds = *seconds;
  out.wall = *wall;
  for (const auto& [name, value] : record.fields()) {
    if (is_own(name)) continue;
    const auto number = record.find_number(name);
    if (!number.has_value()) return missing(name);
    out.metrics.emplace_back(name, *number);
  }
  return out;
}

}  // namespace stoker::metrics
