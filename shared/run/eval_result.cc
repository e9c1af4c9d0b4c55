#include "shared/run/eval_result.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file_stamp.h"
#include "shared/base/json_parser.h"
#include "shared/config/run_metrics.h"
#include "shared/run/lineage.h"

namespace stoker::run {
namespace {

namespace json = boost::json;

json::value number_or_null(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;  // JSON cannot represent NaN and infinity
}

// Boost.JSON's accessors throw; all of them are called inside parse_json_object(), which converts
// exceptions to Status.
double number_or_nan(const json::value& value) {
  return value.is_null() ? std::nan("") : value.to_number<double>();
}

eval_metrics::PerClassMetrics parse_per_class(const json::object& fields) {
  return {.name = fields.at("name").as_string().c_str(),
          .samples = fields.at("support").to_number<uint64_t>(),
          .precision = number_or_nan(fields.at("precision")),
          .recall = number_or_nan(fields.at("recall")),
          .f1 = number_or_nan(fields.at("f1"))};
}

std::vector<uint64_t> parse_counts(const json::value& counts) {
  std::vector<uint64_t> parsed;
  for (const json::value& count : counts.as_array()) parsed.push_back(count.to_number<uint64_t>());
  return parsed;
}

eval_metrics::ConfusionMatrix parse_confusion_matrix(const json::array& rows) {
  eval_metrics::ConfusionMatrix confusion_matrix;
  for (const json::value& row : rows) confusion_matrix.push_back(parse_counts(row));
  return confusion_matrix;
}

eval_metrics::PrCurve parse_pr_curve(const json::object& fields) {
  return {.name = fields.at("name").as_string().c_str(),
          .true_positives = parse_counts(fields.at("true_positives")),
          .false_positives = parse_counts(fields.at("false_positives"))};
}

DatasetResult parse_dataset_result(const json::key_value_pair& entry) {
  DatasetResult dataset;
  dataset.dataset = entry.key();
  for (const auto& field : entry.value().as_object()) {
    if (field.key() == "num_samples") {
      dataset.samples = field.value().to_number<uint64_t>();
    } else if (field.key() == "num_quarantined") {
      dataset.quarantined = field.value().to_number<uint64_t>();
    } else if (field.key() == "per_class") {
      for (const json::value& one : field.value().as_array())
        dataset.classes.push_back(parse_per_class(one.as_object()));
    } else if (field.key() == "confusion_matrix") {
      dataset.confusion_matrix = parse_confusion_matrix(field.value().as_array());
    } else if (field.key() == "pr_curves") {
      for (const json::value& one : field.value().as_array())
        dataset.pr_curves.push_back(parse_pr_curve(one.as_object()));
    } else if (!field.value().is_structured()) {  // otherwise a field of a later release
      dataset.metrics.emplace_back(field.key(), number_or_nan(field.value()));
    }
  }
  return dataset;
}

json::array json_of(const std::vector<eval_metrics::PerClassMetrics>& classes) {
  json::array all;
  for (const eval_metrics::PerClassMetrics& one : classes)
    all.push_back(json::object{{"name", one.name},
                               {"support", one.samples},
                               {"precision", number_or_null(one.precision)},
                               {"recall", number_or_null(one.recall)},
                               {"f1", number_or_null(one.f1)}});
  return all;
}

json::array json_of(const eval_metrics::ConfusionMatrix& confusion_matrix) {
  json::array rows;
  for (const auto& row : confusion_matrix) rows.push_back(json::array(row.begin(), row.end()));
  return rows;
}

json::array json_of(const std::vector<eval_metrics::PrCurve>& pr_curves) {
  json::array all;
  for (const eval_metrics::PrCurve& one : pr_curves)
    all.push_back(json::object{{"name", one.name},
                               {"true_positives", json::value_from(one.true_positives)},
                               {"false_positives", json::value_from(one.false_positives)}});
  return all;
}

json::object json_of(const BestValue& point) {
  return {{"value", number_or_null(point.value)},
          {"step", point.step},
          {"manifest_sha256", point.manifest_sha256}};
}

BestValue best_point_of(const json::object& fields) {
  return {.value = number_or_nan(fields.at("value")),
          .step = fields.at("step").to_number<uint64_t>(),
          .manifest_sha256 = fields.at("manifest_sha256").as_string().c_str()};
}

}  // namespace

std::string to_json(const EvalResult& result) {
  json::object datasets;
  for (const DatasetResult& dataset : result.datasets) {
    json::object& fields = datasets[dataset.dataset].emplace_object();
    for (const auto& [name, value] : dataset.metrics) fields[name] = number_or_null(value);
    fields["num_samples"] = dataset.samples;
    if (dataset.quarantined > 0) fields["num_quarantined"] = dataset.quarantined;
    if (!dataset.classes.empty()) fields["per_class"] = json_of(dataset.classes);
    if (!dataset.confusion_matrix.empty())
      fields["confusion_matrix"] = json_of(dataset.confusion_matrix);
    if (!dataset.pr_curves.empty()) fields["pr_curves"] = json_of(dataset.pr_curves);
  }
  json::object root{{"step", result.step},
                    {"manifest_sha256", result.manifest_sha256},
                    {"datasets", std::move(datasets)},
                    {"duration_seconds", result.seconds},
                    {"created_at", result.created}};
  if (result.maybe_use_ema) root["use_ema"] = *result.maybe_use_ema;
  for (size_t i = 0; i < kRecordedResources; ++i)
    if (const double value = result.resources.values()[i]; std::isfinite(value))
      root[kResourceFields[i].name] = value;
  return json::serialize(root) + "\n";
}

Result<EvalResult> parse_eval_result(std::string_view text, const std::string& path) {
  return parse_json_object<EvalResult>(text, path, [](const json::object& root) {
    EvalResult result;
    result.step = root.at("step").to_number<uint64_t>();
    result.manifest_sha256 = root.at("manifest_sha256").as_string().c_str();
    for (const auto& entry : root.at("datasets").as_object())
      result.datasets.push_back(parse_dataset_result(entry));
    result.seconds = root.at("duration_seconds").to_number<double>();
    result.created = root.at("created_at").as_string().c_str();
    if (const json::value* use_ema = root.if_contains("use_ema"))
      result.maybe_use_ema = use_ema->as_bool();
    for (size_t i = 0; i < kRecordedResources; ++i)
      if (const json::value* value = root.if_contains(kResourceFields[i].name))
        result.resources.values()[i] = value->to_number<double>();
    return result;
  });
}

bool has_few_names(const EvalResult& result) {
  constexpr size_t kMaxNameBytes = 256 << 10;
  size_t bytes = result.created.size() + result.manifest_sha256.size();
  for (const DatasetResult& dataset : result.datasets) {
    bytes += dataset.dataset.size() + sizeof dataset;
    for (const auto& [name, value] : dataset.metrics) bytes += name.size() + sizeof name;
  }
  return bytes <= kMaxNameBytes;
}

bool keep_metrics_only(EvalResult& result) {
  for (DatasetResult& dataset : result.datasets) {
    dataset.classes = {};
    dataset.confusion_matrix = {};
    dataset.pr_curves = {};
  }
  return has_few_names(result);
}

std::optional<EvalResult> find_eval_result(const std::string& eval_dir, uint64_t step,
                                           const std::string& manifest_sha256) {
  const std::string path = eval_result_path(eval_dir, step);
  const auto text = read_file(path, kMaxEvalResultBytes);
  if (!text.ok()) return std::nullopt;
  auto result = parse_eval_result(*text, path);
  if (!result.ok() || result->manifest_sha256 != manifest_sha256) return std::nullopt;
  return *std::move(result);
}

namespace {

// From "step-000001200.json".
std::optional<uint64_t> parse_result_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-", kSuffix = ".json";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

}  // namespace

std::optional<uint64_t> newest_evaluated_step(const RunLayout& layout) {
  const auto names = list_directory(layout.eval_dir());
  const auto lineage = read_lineage(layout.lineage_file());
  if (!names.ok() || !lineage.ok()) return std::nullopt;
  std::set<uint64_t, std::greater<>> steps;
  for (const std::string& name : *names)
    if (const auto step = parse_result_name(name)) steps.insert(*step);
  for (const uint64_t step : steps) {
    const std::string path = eval_result_path(layout.eval_dir(), step);
    const auto text = read_file(path, kMaxEvalResultBytes);
    const auto result = text.ok() ? parse_eval_result(*text, path) : text.status();
    if (result.ok() && lineage->contains(step, result->manifest_sha256)) return step;
  }
  return std::nullopt;
}

std::map<uint64_t, double> EvaluatedValues::read(const RunLayout& layout, const Monitor& monitor) {
  if (std::exchange(metric_, monitor.to_text()) != monitor.to_text()) files_.clear();
  const auto names = list_directory(layout.eval_dir());
  const auto lineage = read_lineage(layout.lineage_file());
  std::map<uint64_t, double> values;
  if (!names.ok() || !lineage.ok()) return values;
  for (const std::string& name : *names) {
    const auto step = parse_result_name(name);
    if (!step) continue;
    const std::string path = eval_result_path(layout.eval_dir(), *step);
    File& file = files_[*step];
    const std::string stamp = file_stamp(path);  // before the text
    if (file.stamp.empty() || file.stamp != stamp) {
      file = {.stamp = stamp, .manifest_sha256 = {}, .maybe_value = {}};
      const auto text = read_file(path, kMaxEvalResultBytes);
      const auto result = text.ok() ? parse_eval_result(*text, path) : text.status();
      if (!result.ok()) continue;
      file.manifest_sha256 = result->manifest_sha256;
      if (const auto value = monitored_value(*result, monitor); value.ok())
        file.maybe_value = *value;
    }
    if (file.maybe_value && lineage->contains(*step, file.manifest_sha256))
      values[*step] = *file.maybe_value;
  }
  return values;
}

std::string eval_result_path(const std::string& eval_dir, uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09llu.json", static_cast<unsigned long long>(step));
  return join_path(eval_dir, name);
}

Status write_eval_result(FileSystem& files, const std::string& eval_dir, const EvalResult& result) {
  return write_file_atomically(files, eval_result_path(eval_dir, result.step), to_json(result));
}

std::string to_json(const BestCheckpoint& best) {
  json::array history;
  for (const BestValue& point : best.history) history.push_back(json_of(point));
  json::object metrics;
  for (const auto& [name, point] : best.metrics) metrics[name] = json_of(point);
  const json::object root{{"dataset", best.dataset},
                          {"metric", best.metric},
                          {"value", number_or_null(best.value)},
                          {"step", best.step},
                          {"manifest_sha256", best.manifest_sha256},
                          {"history", std::move(history)},
                          {"metrics", std::move(metrics)}};
  return json::serialize(root) + "\n";
}

Result<BestCheckpoint> parse_best(std::string_view text, const std::string& path) {
  return parse_json_object<BestCheckpoint>(text, path, [](const json::object& root) {
    BestCheckpoint best;
    best.dataset = root.at("dataset").as_string().c_str();
    best.metric = root.at("metric").as_string().c_str();
    best.value = number_or_nan(root.at("value"));
    best.step = root.at("step").to_number<uint64_t>();
    best.manifest_sha256 = root.at("manifest_sha256").as_string().c_str();
    // Earlier versions wrote neither of these.
    if (const json::value* history = root.if_contains("history"))
      for (const json::value& point : history->as_array())
        best.history.push_back(best_point_of(point.as_object()));
    if (const json::value* metrics = root.if_contains("metrics"))
      for (const auto& [name, point] : metrics->as_object())
        best.metrics.emplace(name, best_point_of(point.as_object()));
    return best;
  });
}

Result<BestCheckpoint> read_best(const RunLayout& layout) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(layout.best_file(), kMaxBestBytes));
  STOKER_ASSIGN_OR_RETURN(BestCheckpoint best, parse_best(text, layout.best_file()));
  STOKER_ASSIGN_OR_RETURN(const Lineage lineage, read_lineage(layout.lineage_file()));
  const uint64_t step = best.step;
  if (auto present = of_present_branch(std::move(best), lineage)) return *std::move(present);
  return Status(StatusCode::kNotFound,
                layout.best_file() + ": step " + std::to_string(step) +
                    " is not an ancestor of the present state; no later evaluation yet");
}

std::optional<BestCheckpoint> of_present_branch(BestCheckpoint best, const Lineage& lineage) {
  const auto is_left = [&lineage](const BestValue& point) {
    return !lineage.contains(point.step, point.manifest_sha256);
  };
  std::erase_if(best.history, is_left);
  std::erase_if(best.metrics, [&](const auto& named) { return is_left(named.second); });
  if (lineage.contains(best.step, best.manifest_sha256)) return best;
  if (best.history.empty()) return std::nullopt;
  const BestValue& last = best.history.back();
  best.value = last.value;
  best.step = last.step;
  best.manifest_sha256 = last.manifest_sha256;
  return best;
}

bool Monitor::is_better(double value, double than, double min_delta) const {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return score(value) < score(than) - min_delta;
}

double Monitor::score(double value) const {
  return direction == eval_metrics::Direction::kMaximize ? -value : value;
}

Result<Monitor> make_monitor(const config::EvalConfig& config,
                             const eval_metrics::MetricTable& table) {
  return make_monitor(config, table, "eval.monitor", config.monitor);
}

Result<Monitor> make_monitor(const config::EvalConfig& config,
                             const eval_metrics::MetricTable& table, const std::string& key,
                             const std::string& metric) {
  const size_t slash = metric.find('/');
  Monitor monitor{.dataset = config.datasets.empty() ? "" : config.datasets.front(),
                  .metric = metric};
  if (slash != std::string::npos) {
    monitor.dataset = metric.substr(0, slash);
    monitor.metric = metric.substr(slash + 1);
  }
  const eval_metrics::MetricDefinition* const definition = table.find(monitor.metric);
  if (definition == nullptr)
    return Status(StatusCode::kInvalidArgument, key + ": " + config::monitor_error(table, metric));
  monitor.direction = definition->direction;
  return monitor;
}

Result<double> monitored_value(const EvalResult& result, const Monitor& monitor) {
  std::string there;
  for (const DatasetResult& dataset : result.datasets) {
    for (const auto& [name, value] : dataset.metrics) {
      if (dataset.dataset == monitor.dataset && name == monitor.metric) return value;
      there += (there.empty() ? "" : ", ") + Monitor{dataset.dataset, name}.to_text();
    }
  }
  return Status(StatusCode::kInvalidArgument, "eval.monitor: " + monitor.to_text() +
                                                  " does not exist; set it to one of " + there);
}

}  // namespace stoker::run
