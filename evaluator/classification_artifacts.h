// Artifacts of one evaluated classification dataset: confusion matrix and misclassified examples.
//
// Threads: pure functions.
// Errors:  those of reading samples again and of the PNG encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "shared/run/eval_result.h"

namespace stoker::evaluator {

// One row per label, one column per prediction. Darker cells hold a larger fraction of the row.
Result<std::string> confusion_matrix_image(
    const eval_metrics::ConfusionMatrix& confusion_matrix,
    const std::vector<eval_metrics::PerClassMetrics>& classes);

struct MisclassifiedExample {
  eval_metrics::MisclassifiedSample misclassified_sample;
  std::string label;  // class name
  std::string prediction;
  std::string source;           // file name; can be empty
  std::vector<uint8_t> planes;  // uint8 image [C, H, W]; empty if not an image
};

// Markdown, one row per example.
std::string misclassified_table(const std::vector<MisclassifiedExample>& misclassified);
// A grid of images of shape [channels, height, width] (1 or 3 channels), each with its label,
// prediction and confidence.
Result<std::string> misclassified_image(const std::vector<MisclassifiedExample>& misclassified,
                                        int channels, int height, int width);

// Replaces the class indices that are the names of classes and curves by the class names of the
// dataset.
void name_classes(const data::Dataset& data, eval_metrics::EvalReport& report);

// `result` is that of this dataset, after name_classes(). Empty if the result has neither classes
// nor misclassified samples.
Result<std::vector<Artifact>> dataset_artifacts(
    const data::Dataset& data, const run::DatasetResult& result,
    const std::vector<eval_metrics::MisclassifiedSample>& misclassified);

}  // namespace stoker::evaluator
