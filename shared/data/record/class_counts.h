// Class counts: how often each class is the label of a sample of a set, and the weights that make all
// classes count alike.
//
// Threads:  functions of their arguments.
// Blocking: count_classes() as the labels' files do, of the kinds that keep labels in such: 1 to 8 bytes
//           a sample.
// Errors:   those of Dataset::read_labels().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

// Of each class; together as many as there are samples, but for those whose label is no class, which
// are bad samples when they are read.
Result<std::vector<uint64_t>> count_classes(const Dataset& data);

// Of each class, samples / (classes * samples of that class), where classes are those that occur:
// scikit-learn's class_weight="balanced". Of a class that does not occur 1.
std::vector<double> balanced_weights(std::span<const uint64_t> counts);

}  // namespace stoker::data::record
