// The evaluation metrics for each task type: classification, binary, multilabel, regression,
// language modeling and label sequences.
//
// Sums are accumulated in double precision and in sample order, so the metrics are bit-for-bit
// independent of the batch size.
//
// Threads: one per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stoker::eval_metrics {

// In order; the first one is the loss.
using MetricValues = std::vector<std::pair<std::string, double>>;

// Per-class metrics, the confusion matrix and precision-recall curves take one line or row per class
// in the result file, so they are omitted above these numbers of classes.
inline constexpr uint64_t kMaxPerClassMetrics = 1000;
inline constexpr uint64_t kMaxConfusionClasses = 256;
inline constexpr uint64_t kMaxPrCurves = 32;
inline constexpr size_t kPrThresholds = 101;
inline constexpr size_t kCalibrationBins = 15;  // as torchmetrics by default

// part / whole, or 0 if whole is 0: a class that was never predicted has precision 0.
inline double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct PerClassMetrics {
  std::string name;      // class name of the dataset, or the class index
  uint64_t samples = 0;  // number with this label
  double precision = 0;
  double recall = 0;
  double f1 = 0;

  bool operator==(const PerClassMetrics&) const = default;
};

// [label][prediction]
using ConfusionMatrix = std::vector<std::vector<uint64_t>>;

// Of one class against all others. Threshold i is i / (thresholds - 1); a sample is predicted as the
// class if its probability is at least the threshold. The first threshold is 0, so the first counts
// are those of all samples of the class and of all others.
struct PrCurve {
  std::string name;  // as in PerClassMetrics
  std::vector<uint64_t> true_positives;
  std::vector<uint64_t> false_positives;

  bool operator==(const PrCurve&) const = default;
};

// PrCurveCounts: counts the samples of a PrCurve, in memory that does not depend on their number.
class PrCurveCounts {
 public:
  // A probability that is NaN is not counted.
  void add(double probability, bool is_positive);
  void add_logit(float logit, bool is_positive);  // of the sigmoid
  PrCurve curve(std::string name) const;

 private:
  struct Bucket {  // from one threshold to the next
    uint64_t positive = 0, negative = 0;
  };
  std::array<Bucket, kPrThresholds> buckets_{};
};

struct MisclassifiedSample {
  uint64_t sample = 0;  // index in the order in which samples were added
  int64_t label = 0;
  int64_t prediction = 0;
  double confidence = 0;  // the model's probability of its prediction
  double loss = 0;

  bool operator==(const MisclassifiedSample&) const = default;
};

// A caption that a model generated.
struct CaptionedSample {
  uint64_t sample = 0;  // index in the order in which samples were added
  std::string caption;
  std::vector<std::string> references;
  bool is_exact = false;  // its words equal those of a reference

  bool operator==(const CaptionedSample&) const = default;
};

// The result of an evaluation on one dataset: named metrics, and for classification their details.
struct EvalReport {
  MetricValues metrics;
  std::vector<PerClassMetrics> classes;  // empty: no classes, or more than kMaxPerClassMetrics
  ConfusionMatrix confusion_matrix;      // empty: no classes, or more than kMaxConfusionClasses
  std::vector<PrCurve> pr_curves;        // empty: no classes, or more than kMaxPrCurves
  std::vector<MisclassifiedSample> misclassified;  // those with the largest loss, worst first
  std::vector<CaptionedSample> captions;           // the first ones
};

// Loss, accuracy, top-k, precision, recall, F1, intersection over union and calibration error of labeled samples. Macro averages are over the
// classes that occur as a label or a prediction, as in scikit-learn. Class weights apply to the
// loss only.

// One batch, with one value per sample.
struct ClassifiedSamples {
  std::span<const float> losses;
  std::span<const int64_t> labels;
  std::span<const int64_t> predictions;
  std::span<const float> confidences;  // probability of the prediction
  // 1: the label is among the k most likely classes; empty: no top-k.
  std::span<const uint8_t> is_in_top_k;
  // [samples, classes]; empty: no precision-recall curves.
  std::span<const float> probabilities = {};
};

class ClassificationMetrics {
 public:
  struct Options {
    uint64_t classes = 0;
    int top_k = 0;             // 0: no top-k metric
    size_t misclassified = 0;  // number of misclassified samples to store
    // Weight of each class in the loss; missing classes have weight 1.
    std::vector<double> weights = {};
  };
  explicit ClassificationMetrics(Options options);

  // Labels and predictions must be below `classes`.
  void add(const ClassifiedSamples& batch);
  EvalReport report() const;

 private:
  void add_misclassified(const MisclassifiedSample& misclassified_sample);
  void add_calibration(double confidence, bool is_correct);
  double calibration_error() const;
  PerClassMetrics compute_per_class(size_t label) const;
  MetricValues metrics(const std::vector<PerClassMetrics>& per_class) const;

  const Options options_;
  double loss_ = 0;
  double weight_ = 0;  // sum over all labels
  uint64_t samples_ = 0;
  uint64_t total_correct_ = 0;
  uint64_t in_top_k_ = 0;
  std::vector<uint64_t> labeled_, predicted_, correct_;  // per class
  // Of samples by the confidence of their prediction; the last bin is that of 1.
  struct CalibrationBin {
    double confidence = 0;  // sum
    double correct = 0;     // number
  };
  std::array<CalibrationBin, kCalibrationBins + 1> calibration_{};
  ConfusionMatrix confusion_;
  std::vector<PrCurveCounts> pr_curves_;            // per class; empty without probabilities
  std::vector<MisclassifiedSample> misclassified_;  // worst first
};

// A score of a sample, and whether it is of the class that the score is for.
struct ScoredSample {
  float logit = 0;
  bool is_positive = false;
};
// scikit-learn's average_precision_score; 0 without a positive sample, NaN if a logit is NaN.
double average_precision(std::vector<ScoredSample> samples);

// BinaryClassificationMetrics: loss, accuracy, area under the ROC curve, average precision, and precision,
// recall and F1 of class 1, of samples with one of two classes.
//
// Class 1 is predicted if the logit is above 0, i.e. its probability is above one half. AUROC is
// scikit-learn's roc_auc_score: the probability that a sample of class 1 has a larger logit than
// one of class 0, where equal logits count one half; NaN if a class has no sample or a logit is NaN.
//
// Memory: AUROC and average precision need all logits in order: 8 bytes per sample.
class BinaryClassificationMetrics {
 public:
  // `misclassified`: number of misclassified samples to store.
  explicit BinaryClassificationMetrics(size_t misclassified)
      : counts_({.classes = 2, .misclassified = misclassified}) {}

  // One value per sample. Labels must be 0 or 1.
  void add(std::span<const float> losses, std::span<const float> logits,
           std::span<const int64_t> labels);
  EvalReport report() const;

 private:
  static double auroc(std::vector<ScoredSample> samples);

  ClassificationMetrics counts_;
  PrCurveCounts pr_curve_;
  std::vector<ScoredSample> predictions_;
};

// MultilabelMetrics: loss, F1, average precision and exact match ratio of samples with independent
// binary labels.
//
// A label is predicted if its logit is above 0, i.e. its probability is above one half. Macro
// averages are over the labels that occur as a target or a prediction. Mean average precision is
// over the labels that are true for at least one sample. Both follow scikit-learn.
//
// Memory: average precision needs all logits of a label in order: 8 bytes per sample and label.
class MultilabelMetrics {
 public:
  // `labels`: number of labels.
  explicit MultilabelMetrics(size_t labels) : labels_(labels) {}

  // All [samples, labels]. A target above one half is true.
  void add(std::span<const float> losses, std::span<const float> logits,
           std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Label {
    uint64_t is_true = 0, predicted = 0, correct = 0;
    PrCurveCounts pr_curve;
    std::vector<ScoredSample> predictions;
  };
  static PerClassMetrics compute_per_class(const Label& label);
  double mean_average_precision() const;

  std::vector<Label> labels_;
  double loss_ = 0;
  double samples_ = 0;
  double exact_ = 0;  // samples with all labels predicted correctly
};

// RegressionMetrics: loss, mean squared error, its root, mean absolute error and R² of predicted values.
class RegressionMetrics {
 public:
  // `width`: number of values per sample.
  explicit RegressionMetrics(size_t width) : columns_(width) {}

  // All [samples, width].
  void add(std::span<const float> losses, std::span<const float> outputs,
           std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Column {
    double squares = 0;  // sum of squared errors
    double mean = 0;     // of the targets
    double spread = 0;   // of the targets: sum of squared deviations from the mean
  };
  double r2() const;

  std::vector<Column> columns_;
  double loss_ = 0;
  double absolute_ = 0;
  double samples_ = 0;
};

// LanguageModelingMetrics: loss, bits, perplexity and accuracy of predicted tokens.
class LanguageModelingMetrics {
 public:
  // `bytes`: each token is one byte, so bits per token are bits per byte.
  explicit LanguageModelingMetrics(bool bytes) : bytes_(bytes) {}

  // One value per token.
  void add(std::span<const float> losses, std::span<const int64_t> targets,
           std::span<const int64_t> predictions);
  // In addition, for tokens that are replies: `begins` is 1 for the first token of each, otherwise 0.
  // Adds the metric exact_match: the fraction of replies whose tokens are all predicted, which are
  // those that greedy decoding generates.
  void add_replies(std::span<const int64_t> targets, std::span<const int64_t> predictions,
                   std::span<const int64_t> begins);
  EvalReport report() const;

 private:
  const bool bytes_;
  double loss_ = 0;
  uint64_t correct_ = 0;
  uint64_t tokens_ = 0;
  uint64_t replies_ = 0, exact_replies_ = 0;
};

// LabelErrorRate: the error rate of decoded label sequences.
//
// The distance of two sequences is the Levenshtein distance: the minimum number of insertions,
// deletions and substitutions.
class LabelErrorRate {
 public:
  void add(float loss, std::span<const int64_t> decoded, std::span<const int64_t> labels);
  // loss: mean over samples; label_error_rate: total distance / total number of labels;
  // exact_match: fraction of samples without an error.
  EvalReport report() const;

 private:
  double loss_ = 0;
  uint64_t samples_ = 0;
  uint64_t labels_ = 0;
  uint64_t errors_ = 0;
  uint64_t exact_ = 0;
};

// Time: the product of both lengths.
uint64_t edit_distance(std::span<const int64_t> one, std::span<const int64_t> other);

// Collapses a CTC best path (the most likely class of each time step): merges repeated labels, then
// removes `blank`. Overwrites `path` and returns its front.
std::span<const int64_t> collapse(std::span<int64_t> path, int64_t blank);

}  // namespace stoker::eval_metrics
