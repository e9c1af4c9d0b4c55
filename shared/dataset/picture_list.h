// PictureList: pictures and their labels as a table names them: `list: train.csv` or `train.jsonl` of
// kind `images`, instead of a folder for each class.
//
// Threads: free functions; the data set as Dataset.
// Errors:  kInvalidArgument (settings, columns), kCorrupt (the list is not what its format allows),
//          kNotFound (a picture that it names is not there); each names list and line.
#pragma once

#include <memory>
#include <string>

#include "shared/base/status.h"
#include "shared/dataset/kind.h"

namespace stoker::dataset {

// The functions of a Kind, for a set whose `list` is not empty.
Result<std::string> picture_list_settings(const SetRequest& set);
// The list itself is the first file, then the pictures in its order.
Result<FileTable> scan_picture_list(const SetRequest& set, const ScanProgress& progress);
Result<Facts> inspect_picture_list(const SetRequest& set, const FileTable& files,
                                   const ScanProgress& progress);
Result<std::unique_ptr<Dataset>> open_picture_list(const SetRequest& set, Index index);

}  // namespace stoker::dataset
