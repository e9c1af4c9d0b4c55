#include "shared/run/eval_result.h"

#include <cmath>

#include <boost/json.hpp>

#include "shared/run/json_object.h"

namespace stoker::run {
namespace {

namespace json = boost::json;

json::value number_or_null(double value) {
  if (std::isfinite(value)) return value;
  return nullptr;  // JSON knows neither NaN nor infinity
}

// Boost.JSON's accessors throw; every call of them is inside parse_object(), which turns that into
// Status.
double number_or_nan(const json::value& value) {
  return value.is_null() ? std::nan("") : value.to_number<double>();
}

score::ClassFigures figures_of(const json::object& fields) {
  return {.name = fields.at("name").as_string().c_str(),
          .samples = fields.at("support").to_number<uint64_t>(),
          .precision = number_or_nan(fields.at("precision")),
          .recall = number_or_nan(fields.at("recall")),
          .f1 = number_or_nan(fields.at("f1"))};
}

score::Confusion confusion_of(const json::array& rows) {
  score::Confusion confusion;
  for (const json::value& row : rows) {
    std::vector<uint64_t>& counts = confusion.emplace_back();
    for (const json::value& count : row.as_array()) counts.push_back(count.to_number<uint64_t>());
  }
  return confusion;
}

SetResult set_result_of(const json::key_value_pair& entry) {
  SetResult set;
  set.set = entry.key();
  for (const auto& field : entry.value().as_object()) {
    if (field.key() == "num_samples") {
      set.samples = field.value().to_number<uint64_t>();
    } else if (field.key() == "per_class") {
      for (const json::value& one : field.value().as_array())
        set.classes.push_back(figures_of(one.as_object()));
    } else if (field.key() == "confusion_matrix") {
      set.confusion = confusion_of(field.value().as_array());
    } else {
      set.metrics.emplace_back(field.key(), number_or_nan(field.value()));
    }
  }
  return set;
}

json::array json_of(const std::vector<score::ClassFigures>& classes) {
  json::array all;
  for (const score::ClassFigures& one : classes)
    all.push_back(json::object{{"name", one.name},
                               {"support", one.samples},
                               {"precision", number_or_null(one.precision)},
                               {"recall", number_or_null(one.recall)},
                               {"f1", number_or_null(one.f1)}});
  return all;
}

json::array json_of(const score::Confusion& confusion) {
  json::array rows;
  for (const auto& row : confusion) rows.push_back(json::array(row.begin(), row.end()));
  return rows;
}

json::object json_of(const BestPoint& point) {
  return {{"value", number_or_null(point.value)},
          {"step", point.step},
          {"manifest_sha256", point.manifest_sha256}};
}

BestPoint best_point_of(const json::object& fields) {
  return {.value = number_or_nan(fields.at("value")),
          .step = fields.at("step").to_number<uint64_t>(),
          .manifest_sha256 = fields.at("manifest_sha256").as_string().c_str()};
}

}  // namespace

std::string to_json(const EvalResult& result) {
  json::object sets;
  for (const SetResult& set : result.sets) {
    json::object& fields = sets[set.set].emplace_object();
    for (const auto& [name, value] : set.metrics) fields[name] = number_or_null(value);
    fields["num_samples"] = set.samples;
    if (!set.classes.empty()) fields["per_class"] = json_of(set.classes);
    if (!set.confusion.empty()) fields["confusion_matrix"] = json_of(set.confusion);
  }
  const json::object root{{"step", result.step},
                          {"manifest_sha256", result.manifest_sha256},
                          {"datasets", std::move(sets)},
                          {"duration_seconds", result.seconds},
                          {"created_at", result.created}};
  return json::serialize(root) + "\n";
}

Result<EvalResult> parse_eval_result(std::string_view text, const std::string& path) {
  return parse_object<EvalResult>(text, path, [](const json::object& root) {
    EvalResult result;
    result.step = root.at("step").to_number<uint64_t>();
    result.manifest_sha256 = root.at("manifest_sha256").as_string().c_str();
    for (const auto& entry : root.at("datasets").as_object())
      result.sets.push_back(set_result_of(entry));
    result.seconds = root.at("duration_seconds").to_number<double>();
    result.created = root.at("created_at").as_string().c_str();
    return result;
  });
}

std::optional<EvalResult> maybe_eval_result(const std::string& eval_dir, uint64_t step,
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

std::string to_json(const Best& best) {
  json::array history;
  for (const BestPoint& point : best.history) history.push_back(json_of(point));
  json::object metrics;
  for (const auto& [name, point] : best.metrics) metrics[name] = json_of(point);
  const json::object root{{"dataset", best.set},
                          {"metric", best.metric},
                          {"value", number_or_null(best.value)},
                          {"step", best.step},
                          {"manifest_sha256", best.manifest_sha256},
                          {"history", std::move(history)},
                          {"metrics", std::move(metrics)}};
  return json::serialize(root) + "\n";
}

Result<Best> parse_best(std::string_view text, const std::string& path) {
  return parse_object<Best>(text, path, [](const json::object& root) {
    Best best;
    best.set = root.at("dataset").as_string().c_str();
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

Result<Best> read_best(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxBytes));
  return parse_best(text, path);
}

}  // namespace stoker::run
