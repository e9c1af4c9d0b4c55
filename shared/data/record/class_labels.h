// ClassLabels: assigns class indices to the labels found in the records of a dataset.
//
// If every label is a non-negative integer (numeric or as text), it is the class index. The number
// of classes is then data.NAME.num_classes or, without that setting, the largest label plus 1.
// Otherwise the labels are class names, and the classes are the distinct names in byte order.
//
// Threads: one at a time.
// Errors:  add(): kCorrupt (not a single label, negative, a name over 1 KiB, more than a million
//          different labels). finish(): kInvalidArgument (more classes than data.NAME.num_classes).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {

constexpr uint64_t kMaxClasses = 1'000'000;

class ClassLabels {
 public:
  // Returns a provisional number of the label; finish() maps it to a class.
  Result<uint64_t> add(const FieldValue& label);

  struct Classes {
    uint64_t count = 0;
    std::vector<std::string> names;  // empty: classes are numbers
    std::vector<uint64_t> of_label;  // class of each provisional number
  };
  // `given`: data.NAME.num_classes; 0 = the number found.
  Result<Classes> finish(uint64_t given) const;

 private:
  struct Label {
    std::string text;
    uint64_t number = 0;
  };
  std::vector<Label> labels_;
  std::unordered_map<std::string, uint64_t> of_text_;
  bool all_numbers_ = true;
};

}  // namespace stoker::data::record
