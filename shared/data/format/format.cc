#include "shared/data/format/format.h"

#include <cassert>

namespace stoker::data::format {

const DatasetFormatOps& format_ops(config::DatasetFormat format) {
  switch (format) {
    case config::DatasetFormat::kText:
      return text_format();
    case config::DatasetFormat::kTokens:
      return tokens_format();
    case config::DatasetFormat::kImageFolder:
      return image_folder_format();
    case config::DatasetFormat::kImageList:
      return image_list_format();
    case config::DatasetFormat::kIdx:
      return idx_format();
    case config::DatasetFormat::kCifar10:
      return cifar10_format();
    case config::DatasetFormat::kCifar100:
      return cifar100_format();
    case config::DatasetFormat::kNumpy:
      return numpy_format();
    case config::DatasetFormat::kTfrecord:
      return tfrecord_format();
    case config::DatasetFormat::kWebdataset:
      return webdataset_format();
    case config::DatasetFormat::kCsv:
      return csv_format();
    case config::DatasetFormat::kJsonl:
      return jsonl_format();
    case config::DatasetFormat::kSynthetic:
      return synthetic_format();
  }
  assert(false && "a DatasetFormat without a Kind");
  return text_format();
}

Result<files::IndexMetadata> no_metadata(const DatasetRequest&, const files::FileTable&,
                                         const files::ScanProgress&) {
  return files::IndexMetadata();
}

}  // namespace stoker::data::format
