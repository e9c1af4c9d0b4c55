// tar_fields: which members of a sample in a tar file hold the values that the settings name.
//
// Members whose names are equal up to the first dot after the last slash, and that follow one
// another, are a sample; what comes after that dot is the extension: WebDataset's rule. The
// settings name extensions: "jpg;png;webp" is the first of these that the sample has,
// "json:meta.class" a value in the JSON that the member holds. A member npy, or with another word
// before that, is an array.
//
// Threads: values; pure functions.
// Errors:  kInvalidArgument, naming the setting.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/format.h"
#include "shared/dataset/record_fields.h"

namespace stoker::dataset {

struct TarField {
  std::vector<std::string> extensions;  // the first that is there counts
  std::string json_key;                 // empty: the member is the value
  bool is_label = false;

  bool is_json() const { return !json_key.empty(); }
  // An array of numpy's: all of its extensions are npy, or end in .npy.
  bool is_npy = false;
  // The place of the extension among those of this field.
  std::optional<size_t> extension_rank(std::string_view extension) const;
};

// One each of fields.names().
Result<std::vector<TarField>> tar_fields(const DatasetRequest& request, const RecordFields& fields);

struct TarName {
  std::string_view key;
  std::string_view extension;
};
// Nothing where the name has no extension, or begins with a dot: it belongs to no sample.
std::optional<TarName> split_tar_name(std::string_view name);

// Extensions do not depend on the case.
std::string lower_case(std::string_view text);

}  // namespace stoker::dataset
