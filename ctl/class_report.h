// ClassReport: how each class of a data set fares, from the evaluator's result of a checkpoint.
//
// Threads:  values; functions of their arguments and the file system.
// Errors:   kNotFound: no such result, set, or nothing by class in it, and what there is; kCorrupt,
//           kIoError: the result's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// Samples of one class that were taken for another.
struct ConfusedPair {
  std::string label;
  std::string prediction;
  uint64_t samples = 0;
  double share = 0;  // of the label's samples

  bool operator==(const ConfusedPair&) const = default;
};

struct ClassReport {
  uint64_t step = 0;
  std::string dataset;
  std::vector<eval_metrics::PerClassMetrics>
      classes;  // the lowest F1 first; of equals the larger class
  std::vector<ConfusedPair>
      confused_pairs;  // the most samples first; none where there is no matrix
};

// `which`: a step, `latest` (of the results) or `best`. `dataset`: empty for the first that has classes.
Result<ClassReport> report_classes(const run::RunLayout& layout, const std::string& which,
                                   const std::string& dataset);
std::string to_json(const ClassReport& report);
// So many of the confusions; all classes.
std::string render_classes(const ClassReport& report, size_t max_confused_pairs,
                           const TextStyle& style);

}  // namespace stoker::ctl
