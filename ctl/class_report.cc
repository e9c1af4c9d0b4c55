#include "ctl/class_report.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include <boost/json.hpp>

#include "ctl/text_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

namespace json = boost::json;

Result<uint64_t> resolve_step(const run::RunLayout& layout, const std::string& selector) {
  if (selector == "latest") {
    if (const auto newest = run::newest_evaluated_step(layout)) return *newest;
    return Status(StatusCode::kNotFound, layout.eval_dir() + ": no evaluation yet");
  }
  if (selector == "best") {
    STOKER_ASSIGN_OR_RETURN(const run::BestCheckpoint best, run::read_best(layout));
    return best.step;
  }
  uint64_t step = 0;
  std::from_chars(selector.data(), selector.data() + selector.size(), step);
  return step;
}

Result<const run::DatasetResult*> select_dataset(const run::EvalResult& result,
                                                 const std::string& path,
                                                 const std::string& dataset) {
  std::string names;
  for (const run::DatasetResult& each : result.datasets) {
    names += " " + printable(each.dataset);
    if (each.classes.empty() || (!dataset.empty() && each.dataset != dataset)) continue;
    return &each;
  }
  return Status(
      StatusCode::kNotFound,
      path + ": no per-class metrics" + (dataset.empty() ? "" : " for dataset '" + dataset + "'") +
          "; only tasks with at most " + std::to_string(eval_metrics::kMaxPerClassMetrics) +
          " classes have them; datasets:" + names);
}

std::vector<ConfusedPair> find_confused_pairs(const run::DatasetResult& result) {
  std::vector<ConfusedPair> all;
  const size_t count = std::min(result.confusion_matrix.size(), result.classes.size());
  for (size_t label = 0; label < count; ++label) {
    const auto& row = result.confusion_matrix[label];
    uint64_t samples = 0;
    for (const uint64_t one : row) samples += one;
    for (size_t prediction = 0; prediction < std::min(row.size(), result.classes.size());
         ++prediction) {
      if (prediction == label || row[prediction] == 0) continue;
      all.push_back(
          {.label = result.classes[label].name,
           .prediction = result.classes[prediction].name,
           .samples = row[prediction],
           .fraction = static_cast<double>(row[prediction]) / static_cast<double>(samples)});
    }
  }
  std::ranges::stable_sort(all, std::greater(), [](const ConfusedPair& one) {
    return std::pair(one.samples, one.fraction);
  });
  return all;
}

}  // namespace

Result<ClassReport> report_classes(const run::RunLayout& layout, const std::string& selector,
                                   const std::string& dataset) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t step, resolve_step(layout, selector));
  const std::string path = run::eval_result_path(layout.eval_dir(), step);
  const auto text = read_file(path, run::kMaxEvalResultBytes);
  if (text.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  path + ": no evaluation result for step " + std::to_string(step));
  if (!text.ok()) return text.status();
  STOKER_ASSIGN_OR_RETURN(const run::EvalResult result, run::parse_eval_result(*text, path));
  STOKER_ASSIGN_OR_RETURN(const run::DatasetResult* const selected,
                          select_dataset(result, path, dataset));
  ClassReport report{.step = step,
                     .dataset = selected->dataset,
                     .classes = selected->classes,
                     .confused_pairs = find_confused_pairs(*selected)};
  std::ranges::stable_sort(report.classes, {}, [](const eval_metrics::PerClassMetrics& one) {
    return std::pair(one.f1, -static_cast<double>(one.samples));
  });
  return report;
}

std::string to_json(const ClassReport& report) {
  json::array classes, confused_pairs;
  for (const eval_metrics::PerClassMetrics& one : report.classes) {
    classes.push_back(json::object{{"name", one.name},
                                   {"support", one.samples},
                                   {"precision", one.precision},
                                   {"recall", one.recall},
                                   {"f1", one.f1}});
  }
  for (const ConfusedPair& one : report.confused_pairs) {
    confused_pairs.push_back(json::object{{"label", one.label},
                                          {"prediction", one.prediction},
                                          {"samples", one.samples},
                                          {"fraction", one.fraction}});
  }
  return json::serialize(json::object{{"step", report.step},
                                      {"dataset", report.dataset},
                                      {"per_class", std::move(classes)},
                                      {"confused", std::move(confused_pairs)}});
}

std::string render_classes(const ClassReport& report, size_t max_confused_pairs,
                           const TextStyle& style) {
  TextTable classes({{"class", true}, {"support"}, {"precision %"}, {"recall %"}, {"F1 %"}});
  for (const eval_metrics::PerClassMetrics& one : report.classes) {
    classes.add({printable(one.name), format_count(one.samples), format_percent(one.precision),
                 format_percent(one.recall), format_percent(one.f1)});
  }
  std::string out = "step " + format_count(report.step) + ", " + printable(report.dataset) + "\n" +
                    classes.render(style);
  if (report.confused_pairs.empty()) return out;
  TextTable confused_pairs({{"label", true}, {"prediction", true}, {"samples"}, {"% of label"}});
  for (size_t i = 0; i < std::min(max_confused_pairs, report.confused_pairs.size()); ++i) {
    const ConfusedPair& one = report.confused_pairs[i];
    confused_pairs.add({printable(one.label), printable(one.prediction), format_count(one.samples),
                        format_percent(one.fraction)});
  }
  return out + "\n" + confused_pairs.render(style);
}

}  // namespace stoker::ctl
