// Kind: what has to be known about one format of data set to find, index and open it; open_dataset.cc
// does the rest.
//
// Threads: constants.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/index.h"

namespace stoker::dataset {

// One named set of the configuration.
struct DatasetRequest {
  const std::string& name;  // "train"
  const config::DatasetConfig& config;
  std::string_view index_dir = {};  // where inspect() may leave files that it makes

  // The part of the configuration that only this format has; `config` is of that format.
  template <typename Source>
  const Source& as() const {
    return std::get<Source>(config.source);
  }
  // Where a file of this set is made: "<index_dir>/train.labels.decompressed". Others of the run that
  // have the index open read it under this name.
  std::string derived_file(std::string_view field, std::string_view what) const {
    return std::string(index_dir) + '/' + name + '.' + std::string(field) + '.' + std::string(what);
  }
  // "data.train.split", as the user would write it.
  std::string key(std::string_view field) const {
    return "data." + name + '.' + std::string(field);
  }
  // kInvalidArgument: "data.train.split: <what>".
  Status config_error(std::string_view field, const std::string& what) const {
    return Status(StatusCode::kInvalidArgument, key(field) + ": " + what);
  }
};

struct DatasetFormatOps {
  std::string_view name;  // of the format, as in the configuration
  // Checks the fields that this format reads, and gives the text of those that decide what the
  // samples are.
  Result<std::string> (*fingerprint_text)(const DatasetRequest& request);
  // Finds the files; reads none of them.
  Result<FileTable> (*scan)(const DatasetRequest& request, const ScanProgress& progress);
  // Reads in the files what has to be known before the first sample. Done once per index, whose
  // folder is there by then.
  Result<IndexMetadata> (*build_metadata)(const DatasetRequest& request, const FileTable& files,
                                          const ScanProgress& progress);
  // Opens; touches no file. The index may be one from disk: facts that make no sense are kCorrupt.
  Result<std::unique_ptr<Dataset>> (*open)(const DatasetRequest& request, Index index);
  // Whether samples are worth being kept in memory: rows of few files, the same each time but for
  // parts of pictures that are drawn.
  bool has_rows = false;
};

const DatasetFormatOps& format_ops(config::DatasetFormat format);

const DatasetFormatOps& text_format();
const DatasetFormatOps& tokens_format();
const DatasetFormatOps& image_folder_kind();
const DatasetFormatOps& image_list_format();
const DatasetFormatOps& idx_format();
const DatasetFormatOps& cifar10_kind();
const DatasetFormatOps& cifar100_kind();
const DatasetFormatOps& numpy_format();
const DatasetFormatOps& tfrecord_format();
const DatasetFormatOps& webdataset_format();
const DatasetFormatOps& csv_format();
const DatasetFormatOps& jsonl_format();
const DatasetFormatOps& synthetic_format();

// kMismatch when the data are not those with the fingerprint `expected`; empty: any.
Status check_fingerprint(const Dataset& data, const std::string& expected, const std::string& name);

// Formats whose files say all by their names and sizes.
Result<IndexMetadata> no_metadata(const DatasetRequest& request, const FileTable& files,
                                  const ScanProgress& progress);

}  // namespace stoker::dataset
