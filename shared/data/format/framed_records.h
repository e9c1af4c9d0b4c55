// Formats whose records are frames with named fields: a framing and fields are sufficient to index, open
// and stream a dataset (record_stream.h).
//
// The index stores the location of each record, its label and, for text, the length of the text: the
// offset, for lines also the number of the line and its size, then the size of the text.
//
// Threads:  functions of their arguments.
// Blocking: index_records() for the disk.
// Errors:   kCorrupt, with file and offset; those of RecordIndexBuilder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_files.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/format.h"
#include "shared/data/format/framing.h"
#include "shared/data/format/record_fields.h"
#include "shared/data/record/record_index.h"
#include "shared/data/record/sample_spec.h"

namespace stoker::data::format {

struct FramedFormat {
  std::string_view name;  // as in the configuration
  Framing framing;
  std::unique_ptr<RecordFields> (*make_fields)(const record::SampleSpec& spec) = nullptr;
  // Sets what follows from other settings; null: nothing.
  void (*resolve)(config::DatasetConfig& config) = nullptr;

  config::DatasetConfig resolved(config::DatasetConfig config) const {
    if (resolve != nullptr) resolve(config);
    return config;
  }
};
const FramedFormat& framed_jsonl();
const FramedFormat& framed_tfrecord();

// As in DatasetFormatOps.
Result<std::string> framed_fingerprint_text(const FramedFormat& format,
                                            const DatasetRequest& request);
Result<files::IndexMetadata> index_records(const FramedFormat& format,
                                           const DatasetRequest& request,
                                           const files::FileTable& files,
                                           const files::ScanProgress& progress);
Result<std::unique_ptr<Dataset>> open_records(const FramedFormat& format,
                                              const DatasetRequest& request, files::Index index);

template <const FramedFormat& (*kFormat)()>
constexpr DatasetFormatOps framed_format_ops(std::string_view name) {
  return {
      .name = name,
      .fingerprint_text =
          [](const DatasetRequest& request) { return framed_fingerprint_text(kFormat(), request); },
      .scan = scan_shards,
      .build_metadata =
          [](const DatasetRequest& request, const files::FileTable& files,
             const files::ScanProgress& progress) {
            return index_records(kFormat(), request, files, progress);
          },
      .open = [](const DatasetRequest& request,
                 files::Index index) { return open_records(kFormat(), request, std::move(index)); },
      .has_rows = true};
}

using MakeFields = std::function<std::unique_ptr<RecordFields>(const record::SampleSpec& spec)>;
// Opens an index whose rows start with the location. `make_fields` is called by each thread that reads.
Result<std::unique_ptr<Dataset>> open_framed(const DatasetRequest& request, files::Index index,
                                             std::string fingerprint, const Framing& framing,
                                             record::SampleSpec spec, MakeFields make_fields);

}  // namespace stoker::data::format
