// ClassMapping: the classes of the model outputs, and the columns of its input: those of data.train in
// its order.
//
// Each dataset numbers its own classes, so a validation image folder that lacks one class would
// number all later classes differently than training did. Evaluated datasets are therefore
// renumbered to match data.train by class name. The name of a class without one is its index: names
// that are not the indices of the other dataset are an error.
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
  std::vector<std::string> columns = {};
};

// Reads what stokerd stored: the schema of data.train next to `index_dir` (RUN/index) or, without one,
// its index. The mapping is empty without both; only one that exists and does not match is logged.
ClassMapping load_class_mapping(const config::Config& config, const std::string& index_dir);

// Wraps `data`, the dataset `name`, so that it has the classes of data.train. kMismatch: it has a
// class that data.train does not have; the message contains its name.
Result<std::unique_ptr<data::Dataset>> with_class_mapping(const ClassMapping& train,
                                                          const std::string& name,
                                                          std::unique_ptr<data::Dataset> data);
// The same for the columns of its input. `config`: of the dataset.
Result<std::unique_ptr<data::Dataset>> with_training_columns(const ClassMapping& train,
                                                             const std::string& name,
                                                             const config::DatasetConfig& config,
                                                             std::unique_ptr<data::Dataset> data);

}  // namespace stoker::evaluator
