// DatasetFormatOps: what has to be known about one format of data set to find, index and open it;
// open_dataset.cc does the rest.
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
  std::string_view name;  // of the format, as in the configuration
  // Checks the fields that this format reads, and gives the text of those that decide what the
  // samples are.
  Result<std::string> (*fingerprint_text)(const DatasetRequest& request);
  // Finds the files; reads none of them.
  Result<files::FileTable> (*scan)(const DatasetRequest& request,
                                   const files::ScanProgress& progress);
  // Reads in the files what has to be known before the first sample. Done once per index, whose
  // folder is there by then.
  Result<files::IndexMetadata> (*build_metadata)(const DatasetRequest& request,
                                                 const files::FileTable& files,
                                                 const files::ScanProgress& progress);
  // Opens; touches no file. The index may be one from disk: facts that make no sense are kCorrupt.
  Result<std::unique_ptr<Dataset>> (*open)(const DatasetRequest& request, files::Index index);
  // Whether samples are worth being kept in memory: rows of few files, the same each time but for
  // parts of pictures that are drawn.
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

// "text tokens image_folder image_list …": the formats, for messages.
std::string supported_formats();

// Formats whose files say all by their names and sizes.
Result<files::IndexMetadata> no_metadata(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         const files::ScanProgress& progress);

}  // namespace stoker::data::format
