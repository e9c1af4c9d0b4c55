// ExampleValues: the values of the named features of one encoded Example, ready for a sample.
//
// Threads: one at a time. Values point into the Example's bytes and into this object's memory, until
//          the next call of find().
// Errors:  kCorrupt, naming the feature; the caller adds which record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/field_value.h"
#include "shared/dataset/record_fields.h"
#include "shared/dataset/tf_example.h"

namespace stoker::dataset {

class ExampleValues {
 public:
  // Finds the features of fields.names() in all of an Example's bytes.
  Status find(std::span<const std::byte> example, const RecordFields& fields);
  // That of fields.names()[name]. Of steps, the numbers of one after another; of a sequence's input
  // each must have as many as its places have, of other values of sequences one.
  Result<FieldValue> value(const RecordFields& fields, size_t name);

 private:
  Result<FieldValue> decode(const RecordFields& fields, size_t name);

  std::span<const std::byte> example_;
  std::vector<FeatureLocation> locations_;
  std::vector<std::vector<int64_t>> ints_;  // a list a name
  std::vector<std::vector<float>> floats_;
};

}  // namespace stoker::dataset
