#include "shared/data/pipeline/open_dataset.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/dataset_schema.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/status.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/cache/decoded_cache.h"
#include "shared/data/cache/memory_cached_dataset.h"
#include "shared/data/cache/packed_images.h"
#include "shared/data/dataset.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/index.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/format.h"
#include "shared/data/pipeline/dataset_refresh.h"
#include "shared/data/pipeline/mixture_dataset.h"
#include "shared/data/pipeline/packed_dataset.h"
#include "shared/data/record/column_order.h"
#include "shared/data/sample_range.h"
#include "shared/data/sample_split.h"
#include "shared/data/sandbox.h"
#include "shared/data/source.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/stream_source.h"
#include "shared/data/transform/image_geometry.h"
#include "shared/data/transform/random_transforms.h"

namespace stoker::data::pipeline {
namespace {

// validate_samples: reads a few samples of a newly indexed dataset, so that settings that match
// none of its records are reported at startup instead of as a thousand sample errors. The index
// records that it has succeeded.
//
// Threads:  functions of their arguments.
// Blocking: reads up to kProbes samples, in the sandbox of the request if it has one.
// Errors:   none of the samples can be read: the code and message of the first error, with the name
//           of the dataset. Those of starting the sandbox.

constexpr uint64_t kProbes = 16;

// `num_read`: how many samples have been tried.
Status read_some(const DatasetRequest& request, const Dataset& dataset, uint64_t& num_read) {
  std::vector<std::vector<std::byte>> tensors;
  for (const TensorSpec& spec : dataset.spec()) tensors.emplace_back(spec.bytes());
  const std::vector<std::span<std::byte>> outputs(tensors.begin(), tensors.end());
  const uint64_t probes = std::min(dataset.size(), kProbes);
  Status first;
  for (uint64_t i = 0; i < probes; ++i) {
    const uint64_t sample = i * dataset.size() / probes;
    const Status status = dataset.read(sample, {.sample = sample}, outputs);
    if (status.ok()) return {};
    if (first.ok()) first = status;
    ++num_read;
  }
  return Status(first.code(), "data." + request.name + ": none of " + std::to_string(probes) +
                                  " inspected samples fits input, shape, label and target; the "
                                  "first: " +
                                  first.message());
}

Status validate_samples(const DatasetRequest& request, const Dataset& dataset,
                        const files::ScanProgress& progress) {
  if (dataset.size() < 2) return {};  // a single sample error says nothing about the settings
  uint64_t num_read = 0;
  if (request.maybe_sandbox == nullptr) return read_some(request, dataset, num_read);
  const auto report = [&] { progress(num_read, "samples validated"); };
  STOKER_ASSIGN_OR_RETURN(const auto reader,
                          request.maybe_sandbox->open_reader(
                              request.name, std::string(request.index_dir), dataset, report));
  return read_some(request, *reader, num_read);
}

bool needs_validation(const config::DatasetConfig& config) {
  return config.has_named_fields() && config.fields()->text.empty();
}

// Checks the name because it becomes a file name.
Result<std::string> index_path(const DatasetRequest& request) {
  if (request.name.empty() || request.name.starts_with('.') ||
      request.name.find('/') != std::string::npos) {
    return Status(StatusCode::kInvalidArgument,
                  "data." + request.name +
                      ": the name of a dataset must not be empty, begin with '.' or hold '/'");
  }
  return index_file(request.name, std::string(request.index_dir));
}

Status check_request(const DatasetRequest& request) {
  if (request.config.combines_datasets()) {
    const bool is_mixture = std::holds_alternative<config::Mixture>(request.config.source);
    return request.config_error(is_mixture ? "mixture" : "concat",
                                "cannot be opened without its datasets");
  }
  STOKER_RETURN_IF_ERROR(cache::validate_cache(request));
  return transform::check_transforms(request);
}

// The other paths of a format, one per line.
std::string other_paths(const config::DatasetSource& source) {
  if (const auto* idx = std::get_if<config::IdxDataset>(&source)) return idx->labels_path;
  if (const auto* list = std::get_if<config::ImageListDataset>(&source)) return list->root;
  if (const auto* numpy = std::get_if<config::NumpyDataset>(&source))
    return numpy->labels_path + '\n' + numpy->lengths_path;
  return "";
}

// The location of the samples, which does not affect their content.
std::string source_of(const DatasetRequest& request) {
  std::string source = request.config.path() + '\n' + request.config.glob() + '\n' +
                       other_paths(request.config.source);
  if (cache::is_packed(request))
    source += "\ncache=" + cache::cache_suffix(*request.config.cache()) + '\n' +
              request.config.cache()->dir.value_or("");
  const auto* const text = std::get_if<config::TextDataset>(&request.config.source);
  if (text != nullptr && text->tokenizer && text->token_cache)
    source += "\ncache=" + text->token_cache->dir.value_or("");
  return source;
}

// The settings of the format and of the random transforms that affect the samples.
Result<std::string> dataset_fingerprint_text(const format::DatasetFormatOps& kind,
                                             const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const std::string fingerprint_text, kind.fingerprint_text(request));
  STOKER_ASSIGN_OR_RETURN(const transform::RandomTransforms augmentation,
                          transform::RandomTransforms::of(request));
  return fingerprint_text + split_text(request) + augmentation.to_text();
}

// Whether a sample is the same each time it is read, and all samples are stored in few files.
bool may_stay_in_memory(const format::DatasetFormatOps& kind, const DatasetRequest& request) {
  return (kind.has_rows || request.config.cache()) &&
         !transform::has_random_resized_crop(request.config);
}

// The files whose modification invalidates the memory cache. With a disk cache, the source files
// can be missing.
std::vector<files::FileTable> files_behind(const DatasetRequest& request,
                                           const files::Index& index) {
  if (request.config.cache()) return {index.metadata.made};
  return {index.files, index.metadata.made};
}

Status check_fingerprint(const DatasetInfo& data, const std::string& expected,
                         const std::string& name) {
  if (expected.empty() || data.fingerprint == expected) return {};
  return Status(StatusCode::kMismatch, name + ": fingerprint " + data.fingerprint + ", expected " +
                                           expected + ": the dataset was indexed again");
}

enum class Makes { kNothing, kFiles };  // in addition to the index

Result<std::unique_ptr<Dataset>> open_with(const format::DatasetFormatOps& kind,
                                           const DatasetRequest& request, files::Index index,
                                           Makes makes, const files::ScanProgress& progress = {}) {
  if (supports_append(request.config)) index.files.allow_append();
  std::vector<files::FileTable> files = files_behind(request, index);
  std::vector<uint64_t> selected = std::move(index.metadata.selected);
  STOKER_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, kind.open(request, std::move(index)));
  if (request.config.splits_samples()) {
    STOKER_ASSIGN_OR_RETURN(
        dataset, with_selected_samples(request, std::move(dataset), std::move(selected)));
  }
  if (makes == Makes::kFiles)
    STOKER_RETURN_IF_ERROR(cache::create_decoded_cache(request, *dataset, progress));
  STOKER_ASSIGN_OR_RETURN(dataset, cache::with_decoded_cache(request, std::move(dataset)));
  if (request.maybe_cache_budget != nullptr && may_stay_in_memory(kind, request) &&
      dataset->max_length() == 0)
    dataset =
        cache::with_memory_cache(std::move(dataset), std::move(files), *request.maybe_cache_budget);
  return transform::with_transforms(request, std::move(dataset));
}

// The samples of a split that is no range of positions: once, when the index is built, so that all
// processes have the same ones.
Result<std::vector<uint64_t>> selected_samples(const format::DatasetFormatOps& kind,
                                               const DatasetRequest& request,
                                               const files::Index& index) {
  const DatasetRequest uncached{
      .name = request.name, .config = request.config, .index_dir = request.index_dir};
  STOKER_ASSIGN_OR_RETURN(const auto whole, kind.open(uncached, index));
  return choose_samples(request, index, *whole);
}

// skip_samples and max_samples count documents.
Result<std::unique_ptr<Dataset>> with_selection(const DatasetRequest& request,
                                                std::unique_ptr<Dataset> whole, LogsPacking logs) {
  STOKER_ASSIGN_OR_RETURN(auto selected, with_sample_range(request, std::move(whole)));
  if (!request.config.is_packed()) return selected;
  return with_packing(request, std::move(selected), logs);
}

bool is_as_made(const DatasetRequest& request, const files::FileTable& made) {
  files::FileTable found(made.root());
  for (size_t file = 0; file < made.size(); ++file)
    if (!files::scan_file(made.path(file), found).ok() ||
        !cache::is_trusted_file(request, made.path(file)))
      return false;
  return found == made;
}

// Why an index that exists is rebuilt.
struct Outdated {
  bool is_unreadable = false;
  bool is_touched =
      false;  // a file has other content, or another mode, with the size and time of before
  std::string reason;
};

// Caches next to the index know files by size and time only. Those in cache.dir stay, see docs/datasets.md.
Status remove_local_caches(const DatasetRequest& request) {
  const std::string prefix = std::string(request.name) + '.';
  STOKER_ASSIGN_OR_RETURN(const auto names, list_directory(std::string(request.index_dir)));
  for (const std::string& name : names) {
    const auto has_suffix = [&name](std::string_view suffix) { return name.ends_with(suffix); };
    constexpr std::array<std::string_view, 5> kSuffixes{".decoded", ".tokens", ".packed",
                                                        ".packed_restart", ".decompressed"};
    if (!name.starts_with(prefix) || std::ranges::none_of(kSuffixes, has_suffix)) continue;
    STOKER_RETURN_IF_ERROR(
        default_file_system().remove_file(join_path(std::string(request.index_dir), name)));
  }
  return {};
}

// Loads the cached index if it was built from the same files with the same settings. An unreadable
// index is not an error: it is rebuilt.
bool take_cached(const DatasetRequest& request, const std::string& path, const files::Index& wanted,
                 files::Index& index, std::optional<Outdated>& why_not) {
  why_not.reset();
  auto cached = files::load_index(path, files::max_index_bytes(wanted));
  if (!cached) {
    if (cached.status().code() != StatusCode::kNotFound)
      why_not = {.is_unreadable = true, .reason = cached.status().message()};
    return false;
  }
  if (cached->fingerprint_text != wanted.fingerprint_text || cached->source != wanted.source ||
      cached->files != wanted.files) {
    why_not = {.reason = "the files or their settings have changed"};
    return false;
  }
  // A program can set the time of modification back, such as an editor that keeps it.
  if (const size_t touched = cached->files.first_touched(wanted.files);
      touched < wanted.files.size()) {
    why_not = {.is_touched = true,
               .reason = wanted.files.path(touched) +
                         ": its content or an attribute was changed; size and time are the same"};
    return false;
  }
  if (!is_as_made(request, cached->metadata.made)) {
    why_not = {.reason = "a file created with it is missing, has changed, or is of another user"};
    return false;
  }
  index = std::move(*cached);
  return true;
}

void log_rebuild(const std::string& path, const Outdated& why) {
  if (why.is_unreadable)
    log_warn("dataset index rebuilt", {{"path", path}, {"reason", why.reason}});
  else
    log_info("dataset index rebuilt", {{"path", path}, {"reason", why.reason}});
}

// While an index is built, because another program that starts at the same time would remove or replace its
// files: stokerd and stoker-eval open the same datasets. nullopt: the file system has no locks.
std::optional<FileLock> lock_index(const std::string& index_dir,
                                   const files::ScanProgress& progress) {
  const auto started = std::chrono::steady_clock::now();
  while (true) {
    auto lock = lock_file(join_path(index_dir, "LOCK"), "pid " + std::to_string(::getpid()));
    if (lock.ok()) return *std::move(lock);
    if (lock.status().code() != StatusCode::kBusy) return std::nullopt;
    const auto waited = std::chrono::steady_clock::now() - started;
    progress(static_cast<uint64_t>(std::chrono::floor<std::chrono::seconds>(waited).count()),
             "seconds waited for another process that indexes it");
  }
}

Result<std::unique_ptr<Dataset>> scan_and_open(const DatasetRequest& request,
                                               const files::ScanProgress& progress) {
  const config::DatasetConfig& config = request.config;
  const std::string index_dir(request.index_dir);
  STOKER_RETURN_IF_ERROR(check_request(request));
  const format::DatasetFormatOps& kind = format::format_ops(config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(request));
  files::Index wanted;
  STOKER_ASSIGN_OR_RETURN(wanted.fingerprint_text, dataset_fingerprint_text(kind, request));
  wanted.source = source_of(request);
  STOKER_ASSIGN_OR_RETURN(wanted.files, kind.scan(request, progress));
  if (config.splits_files()) {
    STOKER_ASSIGN_OR_RETURN(wanted.files, choose_files(request, wanted.files));
  }
  wanted.is_validated = !needs_validation(config);
  files::Index index;
  std::optional<Outdated> why_not;
  const auto is_current = [&]() -> Result<bool> {
    if (!take_cached(request, path, wanted, index, why_not)) return false;
    if (kind.is_current == nullptr) return true;
    return kind.is_current(request, index.metadata);
  };
  STOKER_ASSIGN_OR_RETURN(bool is_cached, is_current());
  std::optional<FileLock> lock;
  if (!is_cached) {
    STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), index_dir));
    lock = lock_index(index_dir, progress);
    // Another process can have built it meanwhile.
    STOKER_ASSIGN_OR_RETURN(is_cached, is_current());
  }
  if (!is_cached) {
    if (why_not) log_rebuild(path, *why_not);
    if (why_not && why_not->is_touched) STOKER_RETURN_IF_ERROR(remove_local_caches(request));
    STOKER_RETURN_IF_ERROR(remove_temporary_files(default_file_system(), index_dir));
    if (supports_append(config)) wanted.files.allow_append();
    STOKER_ASSIGN_OR_RETURN(wanted.metadata, kind.build_metadata(request, wanted.files, progress));
    if (config.splits_samples()) {
      STOKER_ASSIGN_OR_RETURN(wanted.metadata.selected, selected_samples(kind, request, wanted));
      wanted.metadata.groups = {};
    }
    STOKER_RETURN_IF_ERROR(files::save_index(wanted, path));
    index = std::move(wanted);
  }
  std::optional<files::Index> unvalidated;
  if (!index.is_validated) unvalidated = index;
  STOKER_ASSIGN_OR_RETURN(auto whole,
                          open_with(kind, request, std::move(index), Makes::kFiles, progress));
  STOKER_ASSIGN_OR_RETURN(auto data, with_selection(request, std::move(whole), LogsPacking::kYes));
  STOKER_RETURN_IF_ERROR(transform::warn_about_target(request, data->spec()));
  if (unvalidated) {
    STOKER_RETURN_IF_ERROR(validate_samples(request, *data, progress));
    // Until then, each start validates again, for instance after a stop during the validation.
    unvalidated->is_validated = true;
    STOKER_RETURN_IF_ERROR(files::save_index(*unvalidated, path));
  }
  return data;
}

Result<std::unique_ptr<Dataset>> scan_unless_stopped(const DatasetRequest& request,
                                                     const files::ScanProgress& progress) {
  try {
    return scan_and_open(request, progress);
  } catch (const files::ScanStopped&) {
    return Status(StatusCode::kCancelled, "data." + request.name + ": indexing was stopped");
  }
}

Result<std::unique_ptr<Dataset>> load_and_open(const DatasetRequest& request,
                                               const std::string& fingerprint) {
  STOKER_RETURN_IF_ERROR(check_request(request));
  const format::DatasetFormatOps& kind = format::format_ops(request.config.format());
  STOKER_ASSIGN_OR_RETURN(const std::string path, index_path(request));
  STOKER_ASSIGN_OR_RETURN(const std::string fingerprint_text,
                          dataset_fingerprint_text(kind, request));
  auto loaded = files::load_index(path);
  if (!loaded.ok() && loaded.status().code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  path + ": no index yet; it is made when the data is first read");
  if (!loaded.ok()) return loaded.status();
  files::Index index = *std::move(loaded);
  if (index.fingerprint_text != fingerprint_text || index.source != source_of(request)) {
    return Status(StatusCode::kMismatch, path + ": made for other settings of data." +
                                             request.name + " (" + index.fingerprint_text + ")");
  }
  STOKER_ASSIGN_OR_RETURN(auto whole, open_with(kind, request, std::move(index), Makes::kNothing));
  STOKER_ASSIGN_OR_RETURN(auto data, with_selection(request, std::move(whole), LogsPacking::kNo));
  STOKER_RETURN_IF_ERROR(check_fingerprint(data->info(), fingerprint, path));
  return data;
}

// ---- Streams

std::vector<std::string> columns_of(const config::DatasetConfig& config,
                                    std::vector<std::string> config::FieldNames::*names) {
  const config::FieldNames* const fields = config.fields();
  if (fields == nullptr || (fields->*names).size() < 2) return {};
  return fields->*names;
}

Result<Source> open_stream(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const auto source, stream::StreamSource::of(request));
  STOKER_ASSIGN_OR_RETURN(const auto decoder, stream::RecordDecoder::make(request));
  return Source(Stream{{.fingerprint = source.fingerprint(*request.config.stream),
                        .spec = decoder->spec(0),
                        .classes = decoder->classes(),
                        .class_names = request.config.class_names(),
                        .input_columns = columns_of(request.config, &config::FieldNames::input),
                        .target_columns = columns_of(request.config, &config::FieldNames::target),
                        .max_length = decoder->max_length(),
                        .length_tensors = decoder->length_tensors()}});
}

// ---- Mixtures

using OpenOne = std::function<Result<std::unique_ptr<Dataset>>(
    const std::string& name, const config::DatasetConfig& dataset)>;

Result<const config::DatasetConfig*> find_dataset(const std::string& name,
                                                  const config::DatasetConfigs& datasets) {
  const auto found = datasets.find(name);
  if (found == datasets.end())
    return Status(StatusCode::kInvalidArgument, "data." + name + ": there is no such dataset");
  return &found->second;
}

// Records of a stream are not reordered. Other numbers of columns are other tensors, and a single value is named
// differently in another format.
Status check_stream_columns(const std::string& name, const std::string& field,
                            const std::vector<std::string>& columns,
                            const std::vector<std::string>& wanted, const std::string& of) {
  if (columns.size() != wanted.size() || columns == wanted || columns.size() == 1) return {};
  return Status(StatusCode::kMismatch, "data." + name + ".fields." + field + ": must name " +
                                           summarize_names(wanted) + " in this order, as " + of);
}

// `maybe_wanted`: the columns of the first dataset of a mixture.
Result<Source> open_part(const std::string& name, const config::DatasetConfig& config,
                         const OpenOne& open_one, const record::ColumnOrder* maybe_wanted) {
  if (!config.stream) {
    STOKER_ASSIGN_OR_RETURN(auto data, open_one(name, config));
    if (maybe_wanted != nullptr) {
      STOKER_ASSIGN_OR_RETURN(
          data, record::with_column_order(*maybe_wanted, "data." + name, config, std::move(data)));
    }
    return Source(std::move(data));
  }
  STOKER_ASSIGN_OR_RETURN(Source stream, open_stream({.name = name, .config = config}));
  if (maybe_wanted == nullptr) return stream;
  const DatasetInfo& info = info_of(stream);
  STOKER_RETURN_IF_ERROR(check_stream_columns(name, "input", info.input_columns,
                                              maybe_wanted->input, maybe_wanted->of));
  STOKER_RETURN_IF_ERROR(check_stream_columns(name, "target", info.target_columns,
                                              maybe_wanted->target, maybe_wanted->of));
  return stream;
}

Result<Source> open_any(const std::string& name, const config::DatasetConfigs& datasets,
                        const OpenOne& open_one) {
  STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const dataset, find_dataset(name, datasets));
  if (!dataset->combines_datasets()) return open_part(name, *dataset, open_one, nullptr);
  std::vector<NamedSource> opened;
  std::optional<record::ColumnOrder> wanted;
  for (const std::string& part : config::sampled_datasets(datasets, name)) {
    STOKER_ASSIGN_OR_RETURN(const config::DatasetConfig* const config,
                            find_dataset(part, datasets));
    STOKER_ASSIGN_OR_RETURN(auto source,
                            open_part(part, *config, open_one, wanted ? &*wanted : nullptr));
    const DatasetInfo& info = info_of(source);
    if (!wanted)
      wanted = {.of = "data." + part, .input = info.input_columns, .target = info.target_columns};
    opened.push_back({.name = part, .source = std::move(source)});
  }
  if (!opened.empty()) return make_mixture(name, std::move(opened));
  const bool has_shares = std::holds_alternative<config::Mixture>(dataset->source);
  return Status(StatusCode::kInvalidArgument,
                "data." + name + (has_shares ? ".mixture" : ".concat") + ": contains no dataset");
}

Result<std::unique_ptr<Dataset>> require_index(const std::string& name, Result<Source> source) {
  if (!source.ok()) return source.status();
  if (auto* const dataset = std::get_if<std::unique_ptr<Dataset>>(&*source))
    return std::move(*dataset);
  return Status(StatusCode::kInvalidArgument,
                "data." + name + ": is or contains a stream, which has no index");
}

}  // namespace

Result<Source> open_source(const std::string& dataset_name, const config::DatasetConfigs& datasets,
                           const std::string& index_dir, const files::ScanProgress& progress,
                           uint64_t cache_bytes, const Sandbox* maybe_sandbox) {
  files::MemoryBudget budget(cache_bytes);
  return open_any(
      dataset_name, datasets, [&](const std::string& name, const config::DatasetConfig& config) {
        return scan_unless_stopped({name, config, index_dir, &budget, maybe_sandbox}, progress);
      });
}

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress,
                                              uint64_t cache_bytes, const Sandbox* maybe_sandbox) {
  return require_index(dataset_name, open_source(dataset_name, datasets, index_dir, progress,
                                                 cache_bytes, maybe_sandbox));
}

Result<std::unique_ptr<Dataset>> open_dataset(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const files::ScanProgress& progress,
                                              uint64_t cache_bytes, const Sandbox* maybe_sandbox) {
  files::MemoryBudget budget(cache_bytes);
  return scan_unless_stopped({dataset_name, config, index_dir, &budget, maybe_sandbox}, progress);
}

Result<Source> open_indexed_source(const std::string& dataset_name,
                                   const config::DatasetConfigs& datasets,
                                   const std::string& index_dir, const std::string& fingerprint,
                                   uint64_t cache_bytes) {
  files::MemoryBudget budget(cache_bytes);
  STOKER_ASSIGN_OR_RETURN(
      Source source, open_any(dataset_name, datasets,
                              [&](const std::string& name, const config::DatasetConfig& config) {
                                return load_and_open({name, config, index_dir, &budget},
                                                     name == dataset_name ? fingerprint : "");
                              }));
  STOKER_RETURN_IF_ERROR(check_fingerprint(info_of(source), fingerprint, "data." + dataset_name));
  return source;
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfigs& datasets,
                                              const std::string& index_dir,
                                              const std::string& fingerprint,
                                              uint64_t cache_bytes) {
  return require_index(dataset_name, open_indexed_source(dataset_name, datasets, index_dir,
                                                         fingerprint, cache_bytes));
}

Result<std::unique_ptr<Dataset>> open_indexed(const std::string& dataset_name,
                                              const config::DatasetConfig& config,
                                              const std::string& index_dir,
                                              const std::string& fingerprint,
                                              uint64_t cache_bytes) {
  files::MemoryBudget budget(cache_bytes);
  return load_and_open({dataset_name, config, index_dir, &budget}, fingerprint);
}

}  // namespace stoker::data::pipeline
