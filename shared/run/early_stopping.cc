#include "shared/run/early_stopping.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"

namespace stoker::run {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

std::string EarlyStopping::to_text() const {
  return monitor.to_text() + " " + std::string(to_string(monitor.direction)) +
         " patience=" + std::to_string(patience) +
         " patience_steps=" + std::to_string(patience_steps) +
         " min_delta=" + format_exact(min_delta) +
         " stop_at=" + (stop_at ? format_exact(*stop_at) : "off");
}

std::optional<std::string> EarlyStopping::stop_reason(std::span<const MonitorValue> points) const {
  MonitorValue best{.step = 0, .value = std::numeric_limits<double>::quiet_NaN()};
  uint64_t without = 0;  // evaluations without improvement
  for (const MonitorValue& point : points) {
    if (!std::isfinite(point.value)) continue;
    const bool better = monitor.is_better(point.value, best.value, min_delta);
    if (better) best = point;
    without = better ? 0 : without + 1;
  }
  if (points.empty() || !std::isfinite(points.back().value)) return std::nullopt;
  const MonitorValue& last = points.back();
  if (stop_at && (last.value == *stop_at || monitor.is_better(last.value, *stop_at))) {
    return monitor.to_text() + " is " + number(last.value) + " at step " +
           std::to_string(last.step) + ", past eval.early_stopping.stopping_threshold " +
           number(*stop_at);
  }
  const bool is_long = patience > 0 && without >= patience;
  const bool is_long_in_steps =
      patience_steps > 0 && without > 0 && last.step - best.step >= patience_steps;
  if (!is_long && !is_long_in_steps) return std::nullopt;
  return monitor.to_text() + " has not become better than " + number(best.value) + " of step " +
         std::to_string(best.step) + " in " + std::to_string(without) + " evaluations up to step " +
         std::to_string(last.step);
}

Result<EarlyStopping> make_early_stopping(const config::EvalConfig& config,
                                          const eval_metrics::MetricTable& table) {
  STOKER_ASSIGN_OR_RETURN(Monitor monitor, make_monitor(config, table));
  return EarlyStopping{.monitor = std::move(monitor),
                       .patience = config.early_stopping.patience.value_or(0),
                       .patience_steps = config.early_stopping.patience_steps.value_or(0),
                       .min_delta = config.early_stopping.min_delta,
                       .stop_at = config.early_stopping.stopping_threshold};
}

namespace json = boost::json;

std::string to_json(const EarlyStopRequest& request) {
  return json::serialize(json::object{{"step", request.step},
                                      {"manifest_sha256", request.manifest_sha256},
                                      {"rule", request.rule},
                                      {"reason", request.reason}}) +
         "\n";
}

Result<EarlyStopRequest> parse_early_stop_request(std::string_view text, const std::string& path) {
  return parse_json_object<EarlyStopRequest>(text, path, [](const json::object& root) {
    EarlyStopRequest request{.step = root.at("step").to_number<uint64_t>(),
                             .rule = root.at("rule").as_string().c_str(),
                             .reason = root.at("reason").as_string().c_str()};
    if (const json::value* manifest = root.if_contains("manifest_sha256"))
      request.manifest_sha256 = manifest->as_string().c_str();
    return request;
  });
}

Result<EarlyStopRequest> read_early_stop_request(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_early_stop_request(text, path);
}

bool applies(const EarlyStopRequest& request, const Lineage& lineage) {
  if (!request.manifest_sha256.empty())
    return lineage.contains(request.step, request.manifest_sha256);
  if (!lineage.newest()) return !lineage.has_start();
  return request.step <= lineage.newest()->step;
}

}  // namespace stoker::run
