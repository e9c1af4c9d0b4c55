// Confusion matrix image and misclassified examples of a classification result.
//
// Threads: pure functions.
// Errors:  those of the PNG encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/eval_metrics/eval_metrics.h"

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

}  // namespace stoker::evaluator
