// ClassMapping: the classes of the model outputs, which are those of data.train in its order.
//
// Each dataset numbers its own classes, so a validation image folder that lacks one class would
// number all later classes differently than training did. Evaluated datasets are therefore
// renumbered to match data.train by class name. If either dataset has no class names, class indices
// are compared.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"

namespace stoker::evaluator {

struct ClassMapping {
  uint64_t count = 0;  // 0: unknown, or data.train has no classes
  std::vector<std::string> names;
  uint64_t outputs = 0;  // model.num_classes, can be larger than count
};

// Reads the index of data.train that stokerd built in `index_dir` (RUN/index). The mapping is empty
// if the task has no classes or if there is no matching index; only an index that exists and does
// not match is logged.
ClassMapping load_class_mapping(const config::Config& config, const std::string& index_dir);

// Wraps `data`, the dataset `name`, so that it has the classes of data.train. kMismatch: it has a
// class that data.train does not have; the message contains its name.
Result<std::unique_ptr<data::Dataset>> with_class_mapping(const ClassMapping& train,
                                                          const std::string& name,
                                                          std::unique_ptr<data::Dataset> data);

}  // namespace stoker::evaluator
