// npy index: what is found out about the arrays of a set of format `numpy`, once.
//
// Threads: one at a time.
// Errors:  kCorrupt (a file is not what its format allows, labels that are no classes), kMismatch
//          (shards that differ, as many labels as inputs there are not), kInvalidArgument (settings,
//          members that are not there), those of decompress_file(); each names setting and file.
#pragma once

#include <cstdint>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/npy_rows.h"

namespace stoker::data::format {

struct NpyIndex {
  files::FileTable data;  // the files to read: those of the user, then those that were made
  NpyLayout input;
  NpyLayout target_array;
  uint64_t classes = 0;  // 0: the answer is a target
  // Of sequences: how many places of each row are filled; empty: rows are no sequences.
  std::vector<uint64_t> lengths = {};

  // How many of the files are of `path`; those behind them are of `labels_path`, then of `lengths_path`.
  struct Files {
    size_t inputs = 0;
    size_t target_arrays = 0;
  };
  static Result<NpyIndex> make(const DatasetRequest& request, const files::FileTable& files,
                               Files parts, const files::ScanProgress& progress,
                               files::FileTable& made);
  std::vector<uint64_t> to_numbers() const;
  // kCorrupt where the facts are not those of such an index.
  static Result<NpyIndex> of(const files::Index& index);
};

}  // namespace stoker::data::format
