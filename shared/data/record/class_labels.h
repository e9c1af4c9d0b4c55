// ClassLabels: numbers the classes of a set whose labels are found in its records.
//
// Where every label is a whole number, as a number or as people write it, it is the class, and there
// are as many classes as data.NAME.num_classes says, or one more than the largest. Otherwise the labels
// are names, and the classes are the names in the order of their bytes.
//
// Threads: one at a time.
// Errors:  add(): kCorrupt (not one label, negative, a name over 1 KiB, more than a million different
//          ones). finish(): kInvalidArgument where there are more classes than the setting says.
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
  // A provisional number of the label: finish() says which class that is.
  Result<uint64_t> add(const FieldValue& label);

  struct Classes {
    uint64_t count = 0;
    std::vector<std::string> names;  // empty: classes are numbers
    std::vector<uint64_t> of_label;  // class of each provisional number
  };
  // `given`: data.NAME.num_classes; 0 = as many as are found.
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
