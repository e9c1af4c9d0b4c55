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

#include "shared/base/dataset_schema.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"

namespace stoker::data::record {

struct ClassMapping {
  uint64_t count = 0;  // 0: unknown, or data.train has no classes
  std::vector<std::string> names;
  uint64_t outputs = 0;  // model.num_classes, can be larger than count
  std::vector<std::string> input_columns = {}, target_columns = {};
};

// `train`: the schema of data.train. No classes are mapped unless the task has classes.
ClassMapping mapping_to(DatasetSchema train, const config::Config& config);

// Wraps `data`, the dataset `name`, so that it has the classes of data.train. kMismatch: it has a
// class that data.train does not have; the message contains its name.
Result<std::unique_ptr<Dataset>> with_class_mapping(const ClassMapping& train,
                                                    const std::string& name,
                                                    std::unique_ptr<Dataset> data);
// The same for the columns of its input and target. `config`: of the dataset.
Result<std::unique_ptr<Dataset>> with_training_columns(const ClassMapping& train,
                                                       const std::string& name,
                                                       const config::DatasetConfig& config,
                                                       std::unique_ptr<Dataset> data);

}  // namespace stoker::data::record
