// What people can look at of one evaluated set of a classification: confusions and mistakes.
//
// Threads: functions of their arguments.
// Errors:  those of reading the samples again, and of encoding a picture.
#pragma once

#include <string>
#include <vector>

#include "evaluator/view.h"
#include "shared/dataset/dataset.h"
#include "shared/run/eval_result.h"
#include "shared/score/report.h"

namespace stoker::evaluator {

// Gives the figures by class the names that the data set has for them.
void name_classes(const dataset::Dataset& data, std::vector<score::ClassFigures>& classes);

// `result` is of this set, with named classes. Nothing where there are neither classes nor
// mistakes.
Result<std::vector<View>> views_of_set(const dataset::Dataset& data, const run::SetResult& result,
                                       const std::vector<score::Mistake>& mistakes);

}  // namespace stoker::evaluator
