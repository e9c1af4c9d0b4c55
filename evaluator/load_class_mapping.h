// load_class_mapping: the classes and columns of data.train (class_mapping.h), from what stokerd has
// stored.
//
// Threads:  a function of its arguments.
// Blocking: for the disk.
#pragma once

#include <string>

#include "shared/config/config.h"
#include "shared/data/record/class_mapping.h"

namespace stoker::evaluator {

// Reads the schema of data.train next to `index_dir` (RUN/index) or, without one, its index. The
// mapping is empty without both; only one that exists and does not match is logged.
data::record::ClassMapping load_class_mapping(const config::Config& config,
                                              const std::string& index_dir);

}  // namespace stoker::evaluator
