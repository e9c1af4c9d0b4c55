// ClassMapping: what the outputs of a run's models stand for: the classes of data.train, in its order.
//
// A data set numbers its classes by itself: a folder of validation pictures that lacks one class would
// give all after it other numbers than training did. So the sets that are evaluated take their numbers
// from data.train, by the classes' names; where these have none, numbers are numbers.
//
// Threads: values and functions of their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/dataset/dataset.h"

namespace stoker::evaluator {

struct ClassMapping {
  uint64_t count = 0;  // 0: not known, or data.train has none
  std::vector<std::string> names;
  uint64_t outputs = 0;  // model.num_classes, which may be more
};

// By the index that stokerd has made of data.train in `index_dir`, RUN/index. Nothing is known where
// there is none that fits, which is logged unless it is simply not there, nor where the task asks for
// no classes.
ClassMapping load_class_mapping(const config::Config& config, const std::string& index_dir);

// `data`, the set `name`, with the classes of data.train. kMismatch: it has one that data.train does
// not have; the message names it.
Result<std::unique_ptr<dataset::Dataset>> with_class_mapping(
    const ClassMapping& train, const std::string& name, std::unique_ptr<dataset::Dataset> data);

}  // namespace stoker::evaluator
