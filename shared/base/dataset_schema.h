// DatasetSchema: what the numbers in the samples of a dataset mean, its classes and the columns of its
// input and target. Stored with the run and in its checkpoints, so that other data is matched by name.
//
// Threads: values; pure functions.
// Errors:  parse_dataset_schema(): kCorrupt, with `path` in the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "shared/base/status.h"

namespace stoker {

struct DatasetSchema {
  uint64_t num_classes = 0;                 // 0: no classes
  std::vector<std::string> class_names;     // empty: the classes are indices
  std::vector<std::string> input_columns;   // empty: the input has no named columns
  std::vector<std::string> target_columns;  // the same for a target of numbers
  uint64_t num_samples = 0;                 // 0: not fixed (stream, refresh), or not known
  bool operator==(const DatasetSchema&) const = default;
};

boost::json::object to_json_object(const DatasetSchema& schema);
// Throws what Boost.JSON's accessors throw.
DatasetSchema parse_schema_object(const boost::json::object& object);

std::string to_json(const DatasetSchema& schema);
Result<DatasetSchema> parse_dataset_schema(std::string_view json, const std::string& path);

// "3 classes: cat, dog, owl; input columns x, y"; empty without classes and columns.
std::string describe(const DatasetSchema& schema);

// The first names, for messages and the log: "cat, dog, …".
std::string summarize_names(const std::vector<std::string>& names);

}  // namespace stoker
