// Artifacts of one evaluated classification dataset: confusion matrix and misclassified examples.
//
// Threads: pure functions.
// Errors:  those of reading samples again and of the PNG encoder.
#pragma once

#include <string>
#include <vector>

#include "evaluator/artifact.h"
#include "shared/data/dataset.h"
#include "shared/eval_metrics/eval_metrics.h"
#include "shared/run/eval_result.h"

namespace stoker::evaluator {

// Sets the names of `classes` to the class names of the dataset.
void name_classes(const data::Dataset& data, std::vector<eval_metrics::PerClassMetrics>& classes);

// `result` is that of this dataset, after name_classes(). Empty if the result has neither classes
// nor misclassified samples.
Result<std::vector<Artifact>> dataset_artifacts(
    const data::Dataset& data, const run::DatasetResult& result,
    const std::vector<eval_metrics::MisclassifiedSample>& misclassified);

}  // namespace stoker::evaluator
