// list rows: the two columns of a list of pictures, whether it is a csv or a jsonl file.
//
// Threads: a function.
// Errors:  kCorrupt, kInvalidArgument; each names file and line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/field_value.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/format.h"

namespace stoker::dataset {

struct ListRow {
  std::string_view path;
  FieldValue label;
  uint64_t line = 0;
};

// The names of the columns of paths and labels.
std::vector<std::string> list_columns(const config::ImageListDataset& list);
// Whether the name says csv, tsv or jsonl.
bool is_image_list_name(std::string_view name);
// Each row of the first file. A path or a label that is missing is kCorrupt.
Status read_list_rows(const DatasetRequest& request, const FileReader& reader,
                      const FileTable& files, const std::function<Status(const ListRow&)>& on_row);

}  // namespace stoker::dataset
