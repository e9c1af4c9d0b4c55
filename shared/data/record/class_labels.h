// ClassLabels: assigns class indices to the labels found in the records of a dataset.
//
// If every label is a class index, the number of classes is data.NAME.num_classes or,
// without that setting, the largest label plus 1. Otherwise the labels are class names, and the
// classes are the distinct names in byte order; a few names among many indices are an error, because
// they would renumber all classes. With data.NAME.class_names the classes are these, in their order.
//
// Threads: one at a time.
// Errors:  add(): kCorrupt (not a single label, negative, a name over 1 KiB, more than a million
//          different labels, none of class_names). finish(): kInvalidArgument (more classes than
//          data.NAME.num_classes), kCorrupt (a name among indices, with its location).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {

constexpr uint64_t kMaxClasses = 1'000'000;

// What a label is that is a text. kNumbers: where all values are texts, the number that it spells, so that
// 01, 1 and 1.0 are one label. kValues: where numbers and texts are different types, itself: "01" and
// "1.0" are names, and only "1" is the number 1.
enum class TextLabels { kNumbers, kValues };
TextLabels text_labels_of(const config::DatasetConfig& config);

class ClassLabels {
 public:
  // `names`: data.NAME.class_names.
  explicit ClassLabels(std::vector<std::string> names = {},
                       TextLabels texts = TextLabels::kNumbers);

  // The class index that a label is. kCorrupt: it is none.
  Result<uint64_t> index_of(const FieldValue& label) const;

  // The class of a label among the given names, which there must be. kCorrupt: it is none of them.
  Result<uint64_t> class_of(const FieldValue& label) const;

  // Returns a provisional number of the label; finish() maps it to a class.
  Result<uint64_t> add(const FieldValue& label);
  // Whether finish() may need the location of the first record with this label.
  bool needs_location(uint64_t label) const { return first_name_ == label && location_.empty(); }
  void set_location(std::string location) { location_ = std::move(location); }

  struct Classes {
    uint64_t count = 0;
    std::vector<std::string> names;  // empty: classes are numbers
    std::vector<uint64_t> of_label;  // class of each provisional number
  };
  // The errors name the settings of `request`.
  Result<Classes> finish(const DatasetRequest& request) const;

 private:
  struct Label {
    std::string text;
    uint64_t index = 0;
    bool is_class = false;            // `index` is a class
    std::optional<uint64_t> spelled;  // the class index that a name spells otherwise
    uint64_t count = 0;               // of records
  };
  bool all_indices() const;
  Status reject_stray_names(const DatasetRequest& request) const;
  Classes number_names() const;
  // Of data.NAME.class_names.
  Result<uint64_t> given_class(const FieldValue& label, const std::string& text) const;

  const std::vector<std::string> given_;
  const TextLabels texts_;
  std::unordered_map<std::string_view, uint64_t> of_given_;  // views of given_
  bool given_has_index_ = false;                             // one of these names could be an index
  std::vector<Label> labels_;
  std::unordered_map<std::string, uint64_t> of_text_;
  std::optional<uint64_t> first_name_;  // the first label that is no class
  std::string location_;                // of its first record
};

// The part of the fingerprint that describes data.NAME.class_names; empty without them.
std::string class_names_text(const std::vector<std::string>& names);

}  // namespace stoker::data::record
