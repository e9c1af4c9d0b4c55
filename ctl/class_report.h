// ClassReport: per-class metrics of one dataset, from the evaluation result of a checkpoint.
//
// Threads: values and stateless functions; they access only their arguments and the file system.
// Errors:  kNotFound: no such result or dataset, or no per-class metrics in it (the message lists
//          what is available); kCorrupt, kIoError: the result file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctl/terminal.h"
#include "shared/base/status.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// Samples of one class that were predicted as another.
struct ConfusedPair {
  std::string label;
  std::string prediction;
  uint64_t samples = 0;
  double fraction = 0;  // fraction of the samples with this label

  bool operator==(const ConfusedPair&) const = default;
};

struct ClassReport {
  uint64_t step = 0;
  std::string dataset;
  std::vector<eval_metrics::PerClassMetrics>
      classes;  // Lowest F1 first; of equal F1, the larger class first.
  std::vector<ConfusedPair>
      confused_pairs;  // Most samples first; empty without a confusion matrix.
};

// `selector`: a step, `latest` (the latest result) or `best`. `dataset`: empty selects the first
// dataset with per-class metrics.
Result<ClassReport> report_classes(const run::RunLayout& layout, const std::string& selector,
                                   const std::string& dataset);
std::string to_json(const ClassReport& report);
// Lists all classes and at most `max_confused_pairs` confused pairs.
std::string render_classes(const ClassReport& report, size_t max_confused_pairs,
                           const TextStyle& style);

}  // namespace stoker::ctl
