#include "shared/run/eval_result.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

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
  const json::object root{{"step", result.step},
                          {"manifest_sha256", result.manifest_sha256},
                          {"datasets", std::move(datasets)},
                          {"duration_seconds", result.seconds},
                          {"created_at", result.created}};
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
    return result;
  });
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

Result<BestCheckpoint> read_best(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_best(text, path);
}

bool Monitor::higher_is_better() const {
  constexpr auto kHigherIsBetter = std::to_array<std::string_view>(
      {"accuracy", "r2", "macro_precision", "macro_recall", "macro_f1", "micro_f1", "exact_match",
       "mean_average_precision"});
  return metric.starts_with("top") ||  // "top5_accuracy": eval.top_k sets the number
         std::ranges::find(kHigherIsBetter, metric) != kHigherIsBetter.end();
}

bool Monitor::is_better(double value, double than, double min_delta) const {
  if (std::isnan(value)) return false;
  if (std::isnan(than)) return true;
  return higher_is_better() ? value > than + min_delta : value < than - min_delta;
}

Monitor make_monitor(const config::EvalConfig& config) {
  return make_monitor(config, config.monitor);
}

Monitor make_monitor(const config::EvalConfig& config, const std::string& metric) {
  const std::string first = config.datasets.empty() ? "" : config.datasets.front();
  const size_t slash = metric.find('/');
  if (slash == std::string::npos) return {first, metric};
  return {metric.substr(0, slash), metric.substr(slash + 1)};
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
