#include <cassert>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/cache_location.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/dataset_refresh.h"
#include "shared/dataset/decoded_cache.h"
#include "shared/dataset/format.h"
#include "shared/dataset/image_geometry.h"
#include "shared/dataset/index.h"
#include "shared/dataset/memory_cached_dataset.h"
#include "shared/dataset/packed_images.h"
#include "shared/dataset/sample_range.h"
#include "shared/dataset/scan.h"
#include "shared/dataset/transformed_dataset.h"
#include "shared/dataset/validate_samples.h"

namespace stoker::dataset {
namespace {

// The name becomes a file's name.
Result<std::string> index_path(const DatasetRequest& request, const std::string& index_dir) {
  if (request.name.empty() || request.name.starts_with('.') ||
      request.name.find('/') != std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  "data." + request.name +
                      ": the name of a data set must not be empty, begin with '.' or hold '/'");
  }
  return index_file(request.name, index_dir);
}

Status check_request(const DatasetRequest& request) {
  if (request.config.combines_datasets()) {
    const bool is_mixture = std::holds_alternative<config::Mixture>(request.config.source);
    return request.config_error(is_mixture ? "mixture" : "concat",
                                "cannot be opened without its datasets");
  }
  STOKER_RETURN_IF_ERROR(validate_cache(request));
  return check_transforms(request);
}

// The other paths that a format has, one a line.
std::string other_paths(const config::DatasetSource& source) {
  if (const auto* idx = std::get_if<config::IdxDataset>(&source)) return idx->labels_path;
  if (const auto* list = std::get_if<config::ImageListDataset>(&source)) return list->root;
  if (const auto* numpy = std::get_if<config::NumpyDataset>(&source))
    return numpy->labels_path + '\n' + numpy->lengths_path;
  return "";
}

// Where the samples are found, which does not change what they are.
std::string source_of(const DatasetRequest& request) {
  std::string source = request.config.path() + '\n' + request.config.glob() + '\n' +
                       other_paths(request.config.source);
  if (is_packed(request))
    source += "\ncache=" + cache_suffix(*request.config.cache()) + '\n' +
              request.config.cache()->dir.value_or("");
  return source;
}

// What the kind makes of the files, and what is then done to it.
Result<std::string> dataset_fingerprint_text(const DatasetFormatOps& kind,
                                             const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const std::string fingerprint_text, kind.fingerprint_text(request));
  STOKER_ASSIGN_OR_RETURN(const RandomTransforms augmentation, RandomTransforms::of(request));
  return fingerprint_text + augmentation.to_text();
}

// Whether the samples are the same each time, and lie in few files.
bool may_stay_in_memory(const DatasetFormatOps& kind, const DatasetRequest& request) {
  return (kind.has_rows || request.config.cache()) && !has_random_resized_crop(request.config);
}

// Whose change ends that: with a cache the set's own files may be gone.
std::vector<FileTable> files_behind(const DatasetRequest& request, const Index& index) {
  if (request.config.cache()) return {index.metadata.made};
  return {index.files, index.metadata.made};
}

enum class Makes { kNothing, kFiles };  // beside the index

Result<std::unique_ptr<Dataset>> open_with(const DatasetFormatOps& kind,
                                           const DatasetRequest& request, Index index, Makes makes,
                                           const ScanProgress& progress = {}) {
  if (supports_append(request.config)) index.files.allow_append();
  std::vector<FileTable> files = files_behind(request, index);
  STOKER_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, kind.open(request, std::move(index)));
  if (makes == Makes::kFiles)
    STOKER_RETURN_IF_ERROR(create_decoded_cache(request, *dataset, progress));
  STOKER_ASSIGN_OR_RETURN(dataset, with_decoded_cache(request, std::move(dataset)));
  if (may_stay_in_memory(kind, request) && dataset->max_length() == 0)
    dataset = with_memory_cache(std::move(dataset), std::move(files));
  return with_transforms(request, std::move(dataset));
}

bool is_as_made(const FileTable& made) {
  FileTable found(made.root());
  for (size_t file = 0; file < made.size(); ++file)
    if (!scan_file(made.path(file), found).ok()) return false;
  return found == made;
}

// The facts of the cached index, where it was made of the same files. Whatever is wrong with a
// cache, it is only a cache.
bool take_cached(const std::string& path, const Index& wanted, Index& index) {
  auto cached = load_index(path);
  if (!cached) {
    if (cached.status().code() == StatusCode::kNotFound) return false;
    log_warn("dataset index rebuilt", {{"path", path}, {"reason", cached.status().message()}});
    return false;
  }
  if (cached->fingerprint_text != wanted.fingerprint_text || cached->source != wanted.source ||
      cached->files != wanted.files) {
    log_info("dataset index rebuilt",
             {{"path", path}, {"reason", "the files or their settings have changed"}});
    return false;
  }
  if (!is_as_made(cached->metadata.made)) {
    log_info("dataset index rebuilt",
             {{"path", path}, {"reason", "a file that was made beside it is gone or has changed"}});
    return false;
  }
  index = std::move(*cached);
  return true;
}

}  // namespace

const DatasetFormatOps& format_ops(config::DatasetFormat format) {
  switch (format) {
    case config::DatasetFormat::kText:
      return text_format();
    case config::DatasetFormat::kTokens:
      return tokens_format();
    case config::DatasetFormat::kImageFolder:
      return image_folder_kind();
    case config::DatasetFormat::kImageList:
      return image_list_format();
    case config::DatasetFormat::kIdx:
      return idx_format();
    case config::DatasetFormat::kCifar10:
      return cifar10_kind();
    case config::DatasetFormat::kCifar100:
      return cifar100_kind();
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

std::string supported_formats() {
  std::string names;
  for (const DatasetFormatOps* kind :
       {&text_format(), &tokens_format(), &image_folder_kind(), &image_list_format(), &idx_format(),
        &cifar10_kind(), &cifar100_kind(), &numpy_format(), &tfrecord_format(),
        &webdataset_format(), &csv_format(), &jsonl_format(), &synthetic_format()}) {
    if (!names.empty()) names += ' ';
    names += kind->name;
  }
  return names;
}

Result<IndexMetadata> no_metadata(const DatasetRequest&, const FileTable&, const ScanProgress&) {
  return IndexMetadata();
}

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const ScanProgress& progress) {
  const DatasetRequest request{.name = dataset_name, .config = config, .index_dir = index_dir};
  STOKER_RETURN_IF_ERROR(check_request(request));
  const DatasetFormatOps& kind = format_ops(config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(request, index_dir));
  Index wanted;
  STOKER_ASSIGN_OR_RETURN(wanted.fingerprint_text, dataset_fingerprint_text(kind, request));
  wanted.source = source_of(request);
  STOKER_ASSIGN_OR_RETURN(wanted.files, kind.scan(request, progress));
  Index index;
  const bool is_new = !take_cached(path, wanted, index);
  if (is_new) {
    STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), index_dir));
    STOKER_RETURN_IF_ERROR(remove_temporary_files(default_file_system(), index_dir));
    if (supports_append(config)) wanted.files.allow_append();
    STOKER_ASSIGN_OR_RETURN(wanted.metadata, kind.build_metadata(request, wanted.files, progress));
    STOKER_RETURN_IF_ERROR(save_index(wanted, path));
    index = std::move(wanted);
  }
  STOKER_ASSIGN_OR_RETURN(auto whole,
                          open_with(kind, request, std::move(index), Makes::kFiles, progress));
  if (is_new && config.has_named_fields() && config.fields()->text.empty())
    STOKER_RETURN_IF_ERROR(validate_samples(request, *whole));
  return with_sample_range(request, std::move(whole));
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint) {
  const DatasetRequest request{.name = dataset_name, .config = config, .index_dir = index_dir};
  STOKER_RETURN_IF_ERROR(check_request(request));
  const DatasetFormatOps& kind = format_ops(config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(request, index_dir));
  STOKER_ASSIGN_OR_RETURN(const std::string fingerprint_text,
                          dataset_fingerprint_text(kind, request));
  auto loaded = load_index(path);
  if (!loaded.ok() && loaded.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  path + ": no index yet; it is made when the data is first read");
  if (!loaded.ok()) return loaded.status();
  Index index = *std::move(loaded);
  if (index.fingerprint_text != fingerprint_text || index.source != source_of(request)) {
    return Status(StatusCode::kMismatch, path + ": made for other settings of data." +
                                             dataset_name + " (" + index.fingerprint_text + ")");
  }
  STOKER_ASSIGN_OR_RETURN(auto whole, open_with(kind, request, std::move(index), Makes::kNothing));
  STOKER_ASSIGN_OR_RETURN(auto data, with_sample_range(request, std::move(whole)));
  STOKER_RETURN_IF_ERROR(check_fingerprint(*data, fingerprint, path));
  return data;
}

Status check_fingerprint(const Dataset& data, const std::string& expected,
                         const std::string& name) {
  if (expected.empty() || data.fingerprint() == expected) return {};
  return Status(StatusCode::kMismatch, name + ": fingerprint " + data.fingerprint() +
                                           ", expected " + expected +
                                           ": the data set was indexed anew");
}

}  // namespace stoker::dataset
