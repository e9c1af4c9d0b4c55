// The evaluation metrics of each kind of output: classification, multilabel, regression, language
// modeling and label sequences.
//
// Sums are in double and in the order of the samples: however these are cut into batches, the figures
// are the same to the last bit.
//
// Threads: one for each object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stoker::eval_metrics {

// In order; the first is the loss.
using MetricValues = std::vector<std::pair<std::string, double>>;

// Figures of each class, and the matrix, take a line or a row each in the result's file: not of
// more classes than somebody would look at.
inline constexpr uint64_t kMaxPerClassMetrics = 1000;
inline constexpr uint64_t kMaxConfusionClasses = 256;

// part / whole, or 0 where whole is 0: a class that was never predicted has precision 0.
inline double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct PerClassMetrics {
  std::string name;      // as the data set calls it, or its number
  uint64_t samples = 0;  // whose label it is
  double precision = 0;
  double recall = 0;
  double f1 = 0;

  bool operator==(const PerClassMetrics&) const = default;
};

// [label][prediction]
using ConfusionMatrix = std::vector<std::vector<uint64_t>>;

struct MisclassifiedSample {
  uint64_t sample = 0;  // counted from the first that was added
  int64_t label = 0;
  int64_t prediction = 0;
  double confidence = 0;  // the model's, in its prediction
  double loss = 0;

  bool operator==(const MisclassifiedSample&) const = default;
};

// What an evaluation found on one data set: numbers by name, and for classification what is behind them.
struct EvalReport {
  MetricValues metrics;
  std::vector<PerClassMetrics> classes;  // empty: no classes, or more than kMaxPerClassMetrics
  ConfusionMatrix confusion_matrix;      // empty: the same, kMaxConfusionClasses
  std::vector<MisclassifiedSample> misclassified;  // those with the largest loss, the worst first
};

// Loss, accuracy, top-k, precision, recall and F1 of labelled samples. Averages over classes ("macro") are over those that occur,
// as a label or as a prediction; scikit-learn does the same. Weights of classes are in the loss only.

// Of one batch, a value a sample each.
struct ClassifiedSamples {
  std::span<const float> losses;
  std::span<const int64_t> labels;
  std::span<const int64_t> predictions;
  std::span<const float> confidences;    // in the prediction
  std::span<const uint8_t> is_in_top_k;  // 1: the label is among the k most likely; empty: no k
};

class ClassificationMetrics {
 public:
  struct Options {
    uint64_t classes = 0;
    int top_k = 0;             // 0: no such metric
    size_t misclassified = 0;  // how many to remember
    // Of each class: what a sample whose label it is counts in the loss; those that are not there 1.
    std::vector<double> weights = {};
  };
  explicit ClassificationMetrics(Options options);

  // Labels and predictions must be below `classes`.
  void add(const ClassifiedSamples& batch);
  EvalReport report() const;

 private:
  void add_misclassified(const MisclassifiedSample& misclassified_sample);
  PerClassMetrics compute_per_class(size_t label) const;
  MetricValues metrics(const std::vector<PerClassMetrics>& per_class) const;

  const Options options_;
  double loss_ = 0;
  double weight_ = 0;  // of all labels
  uint64_t samples_ = 0;
  uint64_t total_correct_ = 0;
  uint64_t in_top_k_ = 0;
  std::vector<uint64_t> labeled_, predicted_, correct_;  // by class
  ConfusionMatrix confusion_;
  std::vector<MisclassifiedSample> misclassified_;  // the worst first
};

// MultilabelMetrics: loss, F1, average precision and exact matches of samples of which each label is
// true or not by itself.
//
// A label counts as predicted where its logit is above 0, so where the model finds it likelier than
// not. Averages over labels ("macro") are over
// those that occur, as a target or as a prediction; mean average precision is over those that are
// true of at least one sample. Both are scikit-learn's.
//
// Memory:  average precision needs the order of all logits of a label: 8 bytes a sample and label.
class MultilabelMetrics {
 public:
  // `labels`: how many there are.
  explicit MultilabelMetrics(size_t labels) : labels_(labels) {}

  // All [samples, labels]; a target above one half is true.
  void add(std::span<const float> losses, std::span<const float> logits,
           std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Prediction {
    float logit;
    bool is_true;
  };
  struct Label {
    uint64_t is_true = 0, predicted = 0, correct = 0;
    std::vector<Prediction> predictions;
  };
  static PerClassMetrics compute_per_class(const Label& label);
  static double average_precision(std::vector<Prediction> predictions);
  double mean_average_precision() const;

  std::vector<Label> labels_;
  double loss_ = 0;
  double samples_ = 0;
  double exact_ = 0;  // samples of which all labels were predicted rightly
};

// RegressionMetrics: mean squared error, mean absolute error and R² of predicted numbers.
class RegressionMetrics {
 public:
  // `width`: numbers a sample.
  explicit RegressionMetrics(size_t width) : columns_(width) {}

  // Both [samples, width].
  void add(std::span<const float> outputs, std::span<const float> targets);
  EvalReport report() const;

 private:
  struct Column {
    double squares = 0;  // of the errors
    double mean = 0;     // of the targets
    double spread = 0;   // of the targets: squared distances from their mean
  };
  double r2() const;

  std::vector<Column> columns_;
  double absolute_ = 0;
  double samples_ = 0;
};

// LanguageModelingMetrics: loss, bits, perplexity and accuracy of predicted tokens.
class LanguageModelingMetrics {
 public:
  // `bytes`: a token is a byte, so that the bits of one are those of the other.
  explicit LanguageModelingMetrics(bool bytes) : bytes_(bytes) {}

  // A value a token each.
  void add(std::span<const float> losses, std::span<const int64_t> targets,
           std::span<const int64_t> predictions);
  EvalReport report() const;

 private:
  const bool bytes_;
  double loss_ = 0;
  uint64_t correct_ = 0;
  uint64_t tokens_ = 0;
};

// LabelErrorRate: how far decoded sequences of labels are from those that they should be.
//
// The distance of two sequences is Levenshtein's: the fewest labels to put in, take out or replace
// that make one of the other.
class LabelErrorRate {
 public:
  void add(float loss, std::span<const int64_t> decoded, std::span<const int64_t> labels);
  // loss, the mean over samples; label_error_rate: distances together by labels together; exact_match:
  // part of the samples without an error.
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

// What a best path, the likeliest class of each step, stands for: labels of which several in a row
// are one, without `blank`. Written over `path`, of which the front is returned.
std::span<const int64_t> collapse(std::span<int64_t> path, int64_t blank);

}  // namespace stoker::eval_metrics
