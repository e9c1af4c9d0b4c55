// DatasetFormatOps: the functions of one dataset format that find, index and open a dataset.
// open_dataset.cc implements the parts that all formats share.
//
// Threads: constants.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"

namespace stoker::data::format {

struct DatasetFormatOps {
  std::string_view name;  // as in the configuration
  // Checks the keys that this format reads. Returns the text of those that determine the samples.
  Result<std::string> (*fingerprint_text)(const DatasetRequest& request);
  // Finds the files without reading them.
  Result<files::FileTable> (*scan)(const DatasetRequest& request,
                                   const files::ScanProgress& progress);
  // Reads from the files what is needed before the first sample. Runs once per index, after the
  // index folder has been created.
  Result<files::IndexMetadata> (*build_metadata)(const DatasetRequest& request,
                                                 const files::FileTable& files,
                                                 const files::ScanProgress& progress);
  // Whether the metadata of an index with the same settings and files can be used; null: always.
  Result<bool> (*is_current)(const DatasetRequest& request,
                             const files::IndexMetadata& metadata) = nullptr;
  // Opens the dataset without accessing any file, except to fill a cache. The index can come from
  // disk: inconsistent metadata is kCorrupt.
  Result<std::unique_ptr<Dataset>> (*open)(const DatasetRequest& request, files::Index index);
  // Whether caching samples in memory is worthwhile: rows of a few files that are the same on each
  // read, except for random crops of images.
  bool has_rows = false;
};

const DatasetFormatOps& format_ops(config::DatasetFormat format);

const DatasetFormatOps& text_format();
const DatasetFormatOps& tokens_format();
const DatasetFormatOps& image_folder_format();
const DatasetFormatOps& image_list_format();
const DatasetFormatOps& idx_format();
const DatasetFormatOps& cifar10_format();
const DatasetFormatOps& cifar100_format();
const DatasetFormatOps& numpy_format();
const DatasetFormatOps& tfrecord_format();
const DatasetFormatOps& webdataset_format();
const DatasetFormatOps& csv_format();
const DatasetFormatOps& jsonl_format();
const DatasetFormatOps& synthetic_format();

// build_metadata of formats that need only the names and sizes of the files.
Result<files::IndexMetadata> no_metadata(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         const files::ScanProgress& progress);

}  // namespace stoker::data::format
