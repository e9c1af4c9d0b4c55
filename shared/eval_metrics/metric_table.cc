#include "shared/eval_metrics/metric_table.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/resource_use.h"
#include "shared/base/utf8.h"

namespace stoker::eval_metrics {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxTableBytes = 256 << 10, kMaxModelBytes = 64 << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxRows = 256, kMaxNameBytes = 64, kMaxTextBytes = 1000;

constexpr auto kMin = Direction::kMinimize, kMax = Direction::kMaximize;
constexpr auto kMean = Aggregation::kMean, kAll = Aggregation::kDataset;
constexpr std::string_view kFraction = "fraction";

constexpr auto kBuiltin = std::to_array<BuiltinMetric>({
    {"loss", kMin, "", kMean,
     "language_modeling classification binary_classification regression multilabel_classification "
     "sequence_labeling ctc captioning custom",
     "The [training loss](models.md#tasks) as a mean over all samples, labels or tokens, with "
     "`task.class_weights` or `task.pos_weight`: in nats, of `regression` as `task.loss`"},
    {kBitsPerByte, kMin, "bits", kMean, "language_modeling", "loss / ln 2, if tokens are bytes"},
    {kBitsPerToken, kMin, "bits", kMean, "language_modeling",
     "loss / ln 2, if tokens are not bytes"},
    {"perplexity", kMin, "", kAll, "language_modeling", "e^loss"},
    {"accuracy", kMax, kFraction, kMean,
     "language_modeling classification binary_classification sequence_labeling",
     "Fraction of samples (tokens, labels that the [loss](models.md#tasks) does not ignore) whose "
     "label is the most likely prediction; `binary_classification`: class 1 is predicted if its "
     "logit is above 0"},
    {kTopKAccuracy, kMax, kFraction, kMean, "classification sequence_labeling",
     "Fraction of samples (labels) that are among the K most likely classes (`eval.top_k`), with "
     "more than K classes: `top5_accuracy`"},
    {"macro_precision", kMax, kFraction, kAll, "classification sequence_labeling",
     "scikit-learn's `macro` with `zero_division=0`, over the classes that occur as label or "
     "prediction"},
    {"macro_recall", kMax, kFraction, kAll, "classification sequence_labeling",
     "As `macro_precision`"},
    {"precision", kMax, kFraction, kAll, "binary_classification",
     "Of class 1; 0 if its denominator is 0"},
    {"recall", kMax, kFraction, kAll, "binary_classification",
     "Of class 1; 0 if its denominator is 0"},
    {"f1", kMax, kFraction, kAll, "binary_classification", "Of class 1; 0 if its denominator is 0"},
    {"auroc", kMax, kFraction, kAll, "binary_classification",
     "scikit-learn's `roc_auc_score`; NaN if a class does not occur"},
    {"average_precision", kMax, kFraction, kAll, "binary_classification",
     "scikit-learn's `average_precision_score`; 0 if class 1 does not occur"},
    {"label_error_rate", kMin, kFraction, kAll, "ctc",
     "Levenshtein distance of the greedily decoded labels, over all samples, divided by the total "
     "number of labels; can exceed 1"},
    {"bleu_1", kMax, kFraction, kAll, "captioning",
     "Of the [generated captions](captioning.md#evaluation), as pycocoevalcap: corpus BLEU with "
     "the closest reference length"},
    {"bleu_2", kMax, kFraction, kAll, "captioning", "As `bleu_1`, up to two words"},
    {"bleu_3", kMax, kFraction, kAll, "captioning", "As `bleu_1`, up to three words"},
    {"bleu_4", kMax, kFraction, kAll, "captioning", "As `bleu_1`, up to four words"},
    {"cider_d", kMax, "", kAll, "captioning",
     "CIDEr-D, as pycocoevalcap, with document frequencies of the evaluated dataset's references"},
    {"exact_match", kMax, kFraction, kMean,
     "language_modeling multilabel_classification ctc captioning",
     "Fraction of samples predicted without an error: every label of a sample; the decoded labels "
     "of a sequence; the words of one of a caption's references; of "
     "[conversations](datasets.md#conversations) all tokens of a reply, which are those that "
     "greedy decoding generates from what precedes them (also with `fields.labels`, for each run "
     "of labels; of a truncated reply, its beginning)"},
    {"mse", kMin, "square of the target's unit", kMean, "regression", "Mean squared error"},
    {"rmse", kMin, "unit of the target", kAll, "regression", "Root of `mse`"},
    {"mae", kMin, "unit of the target", kMean, "regression", "Mean absolute error"},
    {"r2", kMax, "", kAll, "regression",
     "Coefficient of determination, mean over the target's columns. A constant column counts 1 if "
     "predicted exactly, else 0"},
    {"micro_f1", kMax, kFraction, kAll, "multilabel_classification",
     "F1 of all labels together; predicted: logit above 0"},
    {"macro_f1", kMax, kFraction, kAll,
     "classification sequence_labeling multilabel_classification",
     "As `macro_precision`; `multilabel_classification`: mean over the labels that occur as target "
     "or prediction"},
    {"mean_iou", kMax, kFraction, kAll, "classification sequence_labeling",
     "Intersection over union: samples (labels) of a class that are predicted as it, divided by "
     "those of the class or "
     "predicted as it; scikit-learn's `jaccard_score` with `macro`"},
    {"calibration_error", kMin, kFraction, kAll, "classification sequence_labeling",
     "Mean distance between accuracy and confidence in 15 equal ranges of the confidence, weighted "
     "by their samples; torchmetrics' `MulticlassCalibrationError` with `n_bins=15`"},
    {"entity_precision", kMax, kFraction, kAll, "sequence_labeling",
     "With `task.tags`: fraction of the predicted entities that are labeled with the same type and "
     "range, of all sequences; seqeval's `precision_score`. Steps that the loss ignores are left "
     "out"},
    {"entity_recall", kMax, kFraction, kAll, "sequence_labeling",
     "As `entity_precision`, fraction of the labeled entities that are predicted"},
    {"entity_f1", kMax, kFraction, kAll, "sequence_labeling",
     "Harmonic mean of both, seqeval's `f1_score`"},
    {"mean_average_precision", kMax, kFraction, kAll, "multilabel_classification",
     "Mean of scikit-learn's average precision over the labels with a positive sample"},
});

// Other fields of a line of metrics/eval.jsonl or of a result file, and of metrics/train.jsonl.
constexpr auto kOtherFields = std::to_array<std::string_view>({"loss",
                                                               "step",
                                                               "epoch",
                                                               "lr",
                                                               "dataset",
                                                               "num_samples",
                                                               "num_quarantined",
                                                               "manifest_sha256",
                                                               "duration_seconds",
                                                               "wall_time",
                                                               "per_class",
                                                               "confusion_matrix",
                                                               "pr_curves",
                                                               "grad_norm",
                                                               "samples_seen",
                                                               "skipped_steps",
                                                               "loss_scale",
                                                               "samples_per_second",
                                                               "step_time_ms",
                                                               "data_wait_ms",
                                                               "checkpoint_stall_ms",
                                                               "degraded"});

template <typename Enum>
Enum parse_word(const json::object& fields, const char* key, std::initializer_list<Enum> values) {
  const std::string word = fields.at(key).as_string().c_str();
  std::string words;
  for (const Enum value : values) {
    if (to_string(value) == word) return value;
    words += (words.empty() ? "" : " or ") + std::string(to_string(value));
  }
  throw std::invalid_argument(std::string(key) + " must be " + words);
}

std::string parse_text(const json::object& fields, const char* key) {
  const json::value* const value = fields.if_contains(key);
  if (value == nullptr) return {};
  const std::string text = value->as_string().c_str();
  if (text.size() > kMaxTextBytes || text != printable(text))
    throw std::invalid_argument(std::string(key) + " must be at most " +
                                std::to_string(kMaxTextBytes) + " bytes of printable text");
  return text;
}

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

MetricDefinition parse_row(const json::object& fields) {
  MetricDefinition row;
  row.name = fields.at("name").as_string().c_str();
  if (!is_valid_name(row.name))
    throw std::invalid_argument("name must consist of a to z, 0 to 9 and _, at most " +
                                std::to_string(kMaxNameBytes));
  row.direction = parse_word(fields, "direction", {kMin, kMax});
  row.aggregation =
      fields.contains("aggregation") ? parse_word(fields, "aggregation", {kMean, kAll}) : kMean;
  row.unit = parse_text(fields, "unit");
  row.help = parse_text(fields, "help");
  return row;
}

// Empty: valid.
std::string invalid_row(const MetricTable& table) {
  for (size_t i = 0; i < table.rows().size(); ++i)
    if (table.find(table.rows()[i].name) != &table.rows()[i])
      return "lists the metric '" + table.rows()[i].name + "' twice; remove one";
  return {};
}

Result<MetricTable> table_of(std::string_view text, const std::string& path, bool is_required) {
  const auto read = [is_required](const json::object& root) {
    std::vector<MetricDefinition> parsed;
    if (!is_required && !root.contains("metrics")) return parsed;
    const json::array& rows = root.at("metrics").as_array();
    if (rows.size() > kMaxRows)
      throw std::invalid_argument("more than " + std::to_string(kMaxRows) + " metrics");
    for (const json::value& row : rows) parsed.push_back(parse_row(row.as_object()));
    return parsed;
  };
  STOKER_ASSIGN_OR_RETURN(
      auto parsed, parse_json_object<std::vector<MetricDefinition>>(text, path, read, kMaxDepth));
  MetricTable table(std::move(parsed));
  if (const std::string wrong = invalid_row(table); !wrong.empty())
    return Status(StatusCode::kCorrupt, path + ": " + wrong);
  return table;
}

}  // namespace

std::span<const BuiltinMetric> builtin_metrics() { return kBuiltin; }

std::string_view to_string(Direction direction) {
  switch (direction) {
    case Direction::kMinimize:
      return "minimize";
    case Direction::kMaximize:
      return "maximize";
  }
  return "";
}

std::string_view to_string(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kMean:
      return "mean";
    case Aggregation::kDataset:
      return "dataset";
  }
  return "";
}

const MetricDefinition* MetricTable::find(std::string_view name) const {
  const auto row = std::ranges::find(rows_, name, &MetricDefinition::name);
  return row == rows_.end() ? nullptr : &*row;
}

std::vector<std::string> MetricTable::names() const {
  std::vector<std::string> names;
  for (const MetricDefinition& row : rows_) names.push_back(row.name);
  return names;
}

std::string to_json(const MetricTable& table) {
  json::array rows;
  for (const MetricDefinition& row : table.rows())
    rows.push_back(json::object{{"name", row.name},
                                {"direction", to_string(row.direction)},
                                {"unit", row.unit},
                                {"aggregation", to_string(row.aggregation)},
                                {"help", row.help}});
  return json::serialize(json::object{{"metrics", std::move(rows)}}) + "\n";
}

Result<MetricTable> parse_metric_table(std::string_view text, const std::string& path) {
  return table_of(text, path, /*is_required=*/true);
}

Result<MetricTable> read_metric_table(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxTableBytes));
  return parse_metric_table(text, path);
}

std::string plugin_metrics_path(const std::string& plugin_path) {
  constexpr std::string_view kExtension = ".so";
  std::string path = plugin_path;
  if (path.ends_with(kExtension)) path.resize(path.size() - kExtension.size());
  return path + ".metrics.json";
}

Result<MetricTable> read_model_metrics(const std::string& path) {
  const auto text = read_file(path, kMaxModelBytes);
  if (text.status().code() == StatusCode::kNotFound) return MetricTable();
  if (!text.ok()) return text.status();
  STOKER_ASSIGN_OR_RETURN(MetricTable table, table_of(*text, path, /*is_required=*/false));
  for (const MetricDefinition& row : table.rows())
    if (std::ranges::find(kOtherFields, row.name) != kOtherFields.end() || is_resource(row.name))
      return Status(StatusCode::kCorrupt, path + ": a metric cannot have the name '" + row.name +
                                              "', which is a field of the records; rename it");
  return table;
}

}  // namespace stoker::eval_metrics
