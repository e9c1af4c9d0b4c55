// What people can look at of one evaluated set of a classification: confusions and mistakes.
//
// Threads: functions of their arguments.
// Errors:  those of reading the samples again, and of encoding a picture.
#pragma once

#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "shared/dataset/dataset.h"
#include "shared/eval_metrics/eval_report.h"
#include "shared/run/eval_result.h"

namespace stoker::evaluator {

// Gives the figures by class the names that the data set has for them.
void name_classes(const dataset::Dataset& data,
                  std::vector<eval_metrics::PerClassMetrics>& classes);

// `result` is of this set, with named classes. Nothing where there are neither classes nor
// mistakes.
Result<std::vector<Artifact>> dataset_artifacts(
    const dataset::Dataset& data, const run::DatasetResult& result,
    const std::vector<eval_metrics::MisclassifiedSample>& misclassified);

}  // namespace stoker::evaluator
