// npy index: the metadata of the arrays of a `numpy` dataset, determined once.
//
// Threads: one at a time.
// Errors:  kCorrupt (an invalid file, labels that are not class indices), kMismatch (shards that
//          differ, different numbers of inputs and labels), kInvalidArgument (configuration,
//          missing members), those of decompress_file(); each includes key and file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/npy_rows.h"

namespace stoker::data::format {

struct NpyIndex {
  files::FileTable data;  // the files to read: the user's, then the decompressed ones
  NpyLayout input;
  NpyLayout target_array;              // without rows: there are no labels and targets
  std::vector<NpyLayout> others = {};  // in the order of fields.others
  uint64_t classes = 0;                // 0: the target is numeric
  // Number of valid time steps of each row of a sequence dataset; empty: rows are not sequences.
  std::vector<uint64_t> lengths = {};
  // Rows that are left out because their label or length is invalid, in order.
  std::vector<uint64_t> bad_rows = {};
  // The hash of the group of each other row, while the index is built; empty unless
  // data.NAME.split_by needs it.
  std::vector<uint64_t> groups = {};

  // Number of files of `path` and of `labels_path`, in the order of the file table. The remaining
  // files belong to `lengths_path`.
  struct Files {
    size_t inputs = 0;
    size_t target_arrays = 0;
  };
  static Result<NpyIndex> make(const DatasetRequest& request, const files::FileTable& files,
                               Files parts, const files::ScanProgress& progress,
                               files::FileTable& made);
  std::vector<uint64_t> to_numbers() const;
  std::vector<std::string> to_names() const;  // the bad rows; usually there are none
  bool has_target() const { return target_array.rows() > 0; }
  // kCorrupt if the metadata is not that of a `numpy` index with as many others.
  static Result<NpyIndex> of(const files::Index& index, size_t num_others);
};

}  // namespace stoker::data::format
