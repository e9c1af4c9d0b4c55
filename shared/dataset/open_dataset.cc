#include <cassert>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/augmented_dataset.h"
#include "shared/dataset/cache_place.h"
#include "shared/dataset/crop_rule.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/decoded_dataset.h"
#include "shared/dataset/growth.h"
#include "shared/dataset/index.h"
#include "shared/dataset/kept_samples.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/picture_pack.h"
#include "shared/dataset/probe.h"
#include "shared/dataset/scan.h"
#include "shared/dataset/taken_part.h"

namespace stoker::dataset {
namespace {

// The name becomes a file's name.
Result<std::string> index_path(const SetRequest& set, const std::string& index_dir) {
  if (set.name.empty() || set.name.starts_with('.') || set.name.find('/') != std::string::npos) {
    return Status(Code::kInvalidArgument,
                  "data." + set.name +
                      ": the name of a data set must not be empty, begin with '.' or hold '/'");
  }
  return index_file(set.name, index_dir);
}

Status check_request(const SetRequest& set) {
  if (set.config.combines_datasets()) {
    const bool is_mixture = std::holds_alternative<config::Mixture>(set.config.source);
    return set.wrong(is_mixture ? "mixture" : "concat", "cannot be opened without its datasets");
  }
  STOKER_RETURN_IF_ERROR(check_cache(set));
  return check_transforms(set);
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
std::string source_of(const SetRequest& set) {
  std::string source =
      set.config.path() + '\n' + set.config.glob() + '\n' + other_paths(set.config.source);
  if (is_packed(set))
    source += "\ncache=" + cache_suffix(*set.config.cache()) + '\n' +
              set.config.cache()->dir.value_or("");
  return source;
}

// What the kind makes of the files, and what is then done to it.
Result<std::string> settings_of(const Kind& kind, const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const std::string settings, kind.settings(set));
  STOKER_ASSIGN_OR_RETURN(const Augmentation augmentation, Augmentation::of(set));
  return settings + augmentation.to_text();
}

// Whether the samples are the same each time, and lie in few files.
bool may_stay_in_memory(const Kind& kind, const SetRequest& set) {
  return (kind.has_rows || set.config.cache()) && !has_random_resized_crop(set.config);
}

// Whose change ends that: with a cache the set's own files may be gone.
std::vector<FileTable> files_behind(const SetRequest& set, const Index& index) {
  if (set.config.cache()) return {index.facts.made};
  return {index.files, index.facts.made};
}

enum class Makes { kNothing, kFiles };  // beside the index

Result<std::unique_ptr<Dataset>> open_with(const Kind& kind, const SetRequest& set, Index index,
                                           Makes makes, const ScanProgress& progress = {}) {
  if (may_append(set.config)) index.files.let_grow();
  std::vector<FileTable> files = files_behind(set, index);
  STOKER_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, kind.open(set, std::move(index)));
  if (makes == Makes::kFiles) STOKER_RETURN_IF_ERROR(make_decoded_file(set, *dataset, progress));
  STOKER_ASSIGN_OR_RETURN(dataset, with_decoded_file(set, std::move(dataset)));
  if (may_stay_in_memory(kind, set) && dataset->longest() == 0)
    dataset = with_kept_samples(std::move(dataset), std::move(files));
  return augmented(set, std::move(dataset));
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
    if (cached.status().code() == Code::kNotFound) return false;
    log_warn("dataset index rebuilt", {{"path", path}, {"reason", cached.status().message()}});
    return false;
  }
  if (cached->settings != wanted.settings || cached->source != wanted.source ||
      cached->files != wanted.files) {
    log_info("dataset index rebuilt",
             {{"path", path}, {"reason", "the files or their settings have changed"}});
    return false;
  }
  if (!is_as_made(cached->facts.made)) {
    log_info("dataset index rebuilt",
             {{"path", path}, {"reason", "a file that was made beside it is gone or has changed"}});
    return false;
  }
  index = std::move(*cached);
  return true;
}

}  // namespace

const Kind& kind_of(config::DatasetFormat format) {
  switch (format) {
    case config::DatasetFormat::kText:
      return text_kind();
    case config::DatasetFormat::kTokens:
      return tokens_kind();
    case config::DatasetFormat::kImageFolder:
      return image_folder_kind();
    case config::DatasetFormat::kImageList:
      return image_list_kind();
    case config::DatasetFormat::kIdx:
      return idx_kind();
    case config::DatasetFormat::kCifar10:
      return cifar10_kind();
    case config::DatasetFormat::kCifar100:
      return cifar100_kind();
    case config::DatasetFormat::kNumpy:
      return npy_kind();
    case config::DatasetFormat::kTfrecord:
      return tfrecord_kind();
    case config::DatasetFormat::kWebdataset:
      return tar_kind();
    case config::DatasetFormat::kCsv:
      return csv_kind();
    case config::DatasetFormat::kJsonl:
      return jsonl_kind();
    case config::DatasetFormat::kSynthetic:
      return synthetic_kind();
  }
  assert(false && "a DatasetFormat without a Kind");
  return text_kind();
}

std::string supported_kinds() {
  std::string names;
  for (const Kind* kind :
       {&text_kind(), &tokens_kind(), &image_folder_kind(), &image_list_kind(), &idx_kind(),
        &cifar10_kind(), &cifar100_kind(), &npy_kind(), &tfrecord_kind(), &tar_kind(), &csv_kind(),
        &jsonl_kind(), &synthetic_kind()}) {
    if (!names.empty()) names += ' ';
    names += kind->name;
  }
  return names;
}

Result<Facts> no_facts(const SetRequest&, const FileTable&, const ScanProgress&) { return Facts(); }

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& set_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const ScanProgress& progress) {
  const SetRequest set{.name = set_name, .config = config, .index_dir = index_dir};
  STOKER_RETURN_IF_ERROR(check_request(set));
  const Kind& kind = kind_of(config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(set, index_dir));
  Index wanted;
  STOKER_ASSIGN_OR_RETURN(wanted.settings, settings_of(kind, set));
  wanted.source = source_of(set);
  STOKER_ASSIGN_OR_RETURN(wanted.files, kind.scan(set, progress));
  Index index;
  const bool is_new = !take_cached(path, wanted, index);
  if (is_new) {
    STOKER_RETURN_IF_ERROR(make_directories(real_files(), index_dir));
    STOKER_RETURN_IF_ERROR(remove_unfinished_writes(real_files(), index_dir));
    if (may_append(config)) wanted.files.let_grow();
    STOKER_ASSIGN_OR_RETURN(wanted.facts, kind.inspect(set, wanted.files, progress));
    STOKER_RETURN_IF_ERROR(save_index(wanted, path));
    index = std::move(wanted);
  }
  STOKER_ASSIGN_OR_RETURN(auto whole,
                          open_with(kind, set, std::move(index), Makes::kFiles, progress));
  if (is_new && config.has_named_fields() && config.fields()->text.empty())
    STOKER_RETURN_IF_ERROR(probe(set, *whole));
  return taken_part(set, std::move(whole));
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& set_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint) {
  const SetRequest set{.name = set_name, .config = config, .index_dir = index_dir};
  STOKER_RETURN_IF_ERROR(check_request(set));
  const Kind& kind = kind_of(config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(set, index_dir));
  STOKER_ASSIGN_OR_RETURN(const std::string settings, settings_of(kind, set));
  auto loaded = load_index(path);
  if (!loaded.ok() && loaded.status().code() == Code::kNotFound)
    return Status(Code::kNotFound, path + ": no index yet; it is made when the data is first read");
  if (!loaded.ok()) return loaded.status();
  Index index = *std::move(loaded);
  if (index.settings != settings || index.source != source_of(set)) {
    return Status(Code::kMismatch, path + ": made for other settings of data." + set_name + " (" +
                                       index.settings + ")");
  }
  STOKER_ASSIGN_OR_RETURN(auto whole, open_with(kind, set, std::move(index), Makes::kNothing));
  STOKER_ASSIGN_OR_RETURN(auto data, taken_part(set, std::move(whole)));
  STOKER_RETURN_IF_ERROR(check_fingerprint(*data, fingerprint, path));
  return data;
}

Status check_fingerprint(const Dataset& data, const std::string& expected,
                         const std::string& name) {
  if (expected.empty() || data.fingerprint() == expected) return {};
  return Status(Code::kMismatch, name + ": fingerprint " + data.fingerprint() + ", expected " +
                                     expected + ": the data set was indexed anew");
}

}  // namespace stoker::dataset
