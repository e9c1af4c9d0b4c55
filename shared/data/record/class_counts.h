// count_classes: counts the samples of each class of a dataset; balanced_weights: class weights
// that compensate for unequal counts.
//
// Threads:  functions of their arguments.
// Blocking: count_classes() for the disk if the format stores labels in separate files; it then
//           reads 1 to 8 bytes per sample.
// Errors:   those of Dataset::read_labels().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

// The number of samples of each class. Samples with an invalid label are not counted; reading them
// is a sample error.
Result<std::vector<uint64_t>> count_classes(const Dataset& data);
// The same of `size` samples from `first`. `maybe_weights`: of each of these samples, of which the sums are
// returned; empty: all are 1.
Result<std::vector<double>> count_classes(const Dataset& data, uint64_t first, uint64_t size,
                                          std::span<const double> maybe_weights);

// For each class, samples / (classes * samples of that class), as scikit-learn's
// class_weight="balanced"; the counts can be weighted. Classes without samples are not counted as classes; their
// weight is 1.
std::vector<double> balanced_weights(std::span<const double> counts);

}  // namespace stoker::data::record
