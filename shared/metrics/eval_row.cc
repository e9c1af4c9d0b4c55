#include "shared/metrics/eval_row.h"

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
  return Status(Code::kCorrupt,
                "field \"" + std::string(name) + "\" is missing or has the wrong type");
}

}  // namespace

Row to_row(const EvalRow& row) {
  Row out;
  out.add("step", row.step).add("dataset", std::string_view(row.set));
  for (const auto& [name, value] : row.metrics) {
    assert(!is_own(name) && "a metric that is named like a field of every row");
    out.add(name, value);
  }
  out.add("num_samples", row.samples)
      .add("manifest_sha256", std::string_view(row.manifest_sha256))
      .add("duration_seconds", row.seconds)
      .add("wall_time", std::string_view(row.wall));
  return out;
}

Result<EvalRow> eval_row_of(const Row& row) {
  EvalRow out;
  const auto step = row.maybe_count("step");
  const auto set = row.maybe_text("dataset");
  const auto samples = row.maybe_count("num_samples");
  const auto manifest = row.maybe_text("manifest_sha256");
  const auto seconds = row.maybe_number("duration_seconds");
  const auto wall = row.maybe_text("wall_time");
  if (!step) return missing("step");
  if (!set) return missing("dataset");
  if (!samples) return missing("num_samples");
  if (!manifest) return missing("manifest_sha256");
  if (!seconds) return missing("duration_seconds");
  if (!wall) return missing("wall_time");
  out.step = *step;
  out.set = *set;
  out.samples = *samples;
  out.manifest_sha256 = *manifest;
  out.seconds = *seconds;
  out.wall = *wall;
  for (const auto& [name, value] : row.fields()) {
    if (is_own(name)) continue;
    const auto number = row.maybe_number(name);
    if (!number.has_value()) return missing(name);
    out.metrics.emplace_back(name, *number);
  }
  return out;
}

}  // namespace stoker::metrics
