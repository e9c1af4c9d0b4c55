// What a classification's figures look like: the matrix of confusions, the worst mistakes.
//
// Threads: functions of their arguments.
// Errors:  those of encoding a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/eval_metrics/eval_report.h"

namespace stoker::evaluator {

// A row for each label, a column for each prediction; the darker, the larger the part of the row.
Result<std::string> confusion_matrix_image(
    const eval_metrics::ConfusionMatrix& confusion_matrix,
    const std::vector<eval_metrics::PerClassMetrics>& classes);

struct MisclassifiedExample {
  eval_metrics::MisclassifiedSample misclassified_sample;
  std::string label;  // as people call it
  std::string prediction;
  std::string source;           // file, or nothing
  std::vector<uint8_t> planes;  // of a picture: plane after plane; empty: it is none
};

// Markdown: a line each.
std::string misclassified_table(const std::vector<MisclassifiedExample>& misclassified);
// A grid of pictures of `channels` (1 or 3) planes of `height` rows of `width`, each with its
// label, prediction and confidence.
Result<std::string> misclassified_image(const std::vector<MisclassifiedExample>& misclassified,
                                        int channels, int height, int width);

}  // namespace stoker::evaluator
