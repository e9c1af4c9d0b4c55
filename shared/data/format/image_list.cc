// Format `image_list`: images and labels or captions that are listed in a .csv, .tsv or .jsonl file.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/cache/packed_images.h"
#include "shared/data/dataset_files.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/csv_table.h"
#include "shared/data/format/format.h"
#include "shared/data/format/image_reader.h"
#include "shared/data/format/json_values.h"
#include "shared/data/format/text_records.h"
#include "shared/data/record/bad_records.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/sample_range.h"
#include "shared/data/sample_split.h"
#include "shared/data/transform/image_decoder_input.h"

namespace stoker::data::format {
namespace {

// list rows: the columns of an image list, from a CSV or a JSONL file; the second is a label or
// captions. When the index is built, the third is the group if data.NAME.split_by needs it.
//
// Threads: a function.
// Errors:  kCorrupt, kInvalidArgument; each includes file and line. Rows that cannot be used are left
//          out (BadRecords).
struct ListRow {
  std::string_view path;
  record::FieldValue label;
  std::optional<uint64_t> group = {};  // its hash
  uint64_t line = 0;
};

// The configured names of the columns of the path and of the label or captions.
std::vector<std::string> list_columns(const config::ImageListDataset& list);
// With that of the group.
std::vector<std::string> read_columns(const DatasetRequest& request);

bool is_json(std::string_view name) { return name.ends_with(".jsonl"); }
bool is_tabbed(std::string_view name) { return name.ends_with(".tsv"); }

// Parses rows and passes them to `on_row`.
class ListReader {
 public:
  ListReader(const DatasetRequest& request, std::string path,
             const std::function<Status(const ListRow&)>& on_row)
      : request_(request),
        path_(std::move(path)),
        names_(read_columns(request)),
        delimiter_(is_tabbed(path_) ? '\t' : ','),
        has_captions_(request.config.has_captions()),
        json_(names_, 0, has_captions_ ? std::optional<size_t>(1) : std::nullopt),
        take_(on_row) {}

  char delimiter() const { return delimiter_; }
  bool has_header() const { return indices_.has_value(); }

  Status at(const TextLine& row, const Status& status) const {
    return status.ok() ? status : status.with_context(path_ + ": " + line_location_text(row.line));
  }

  Status take_csv(const TextLine& row) {
    if (!indices_) return take_header(row);
    STOKER_RETURN_IF_ERROR(row_.split(row.text, delimiter_));
    std::vector<record::FieldValue> values(names_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if ((*indices_)[i] >= row_.size()) continue;
      const std::string_view text = record::trimmed(row_[(*indices_)[i]]);
      if (!text.empty()) values[i] = std::as_bytes(std::span(text));
    }
    return deliver(row, values);
  }

  Status take_json(const TextLine& row) {
    std::vector<record::FieldValue> values(names_.size());
    STOKER_RETURN_IF_ERROR(json_.read(row.text, values));
    return deliver(row, values);
  }

 private:
  Status take_header(const TextLine& row) {
    auto columns = csv_header(row.text, delimiter_);
    if (!columns) return at(row, columns.status());
    indices_.emplace(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) {
      std::optional<size_t> index;
      for (size_t column = 0; column < columns->size(); ++column) {
        if ((*columns)[column] != names_[i]) continue;
        if (index)
          return request_.config_error("path", path_ + " has two columns '" + names_[i] + "'");
        index = column;
      }
      if (!index) {
        return request_.config_error(i == 0          ? "fields.image"
                                     : i == 2        ? "fields.group"
                                     : has_captions_ ? "fields.caption"
                                                     : "fields.label",
                                     path_ + " has no column '" + names_[i] + "'");
      }
      indices_->at(i) = *index;
    }
    return {};
  }

  Status deliver(const TextLine& row, const std::vector<record::FieldValue>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_text = i == 0 || (i == 1 && has_captions_);
      if (record::is_missing(values[i]) || (is_text && !record::is_bytes(values[i])))
        return Status(StatusCode::kCorrupt, "has no '" + names_[i] + "'");
    }
    const std::string_view path = record::to_string_view(std::get<record::FieldBytes>(values[0]));
    // Control characters would break a one-line message, and the system truncates a path at a NUL.
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (path.empty() || std::ranges::any_of(path, is_control))
      return Status(StatusCode::kCorrupt, "'" + names_[0] + "' is no path");
    std::optional<uint64_t> group;
    if (values.size() > 2) {
      const auto text = record::group_text(values[2]);
      if (!text.ok()) return text.status().with_context("'" + names_[2] + "'");
      group = name_hash(*text);
    }
    return take_({.path = path, .label = values[1], .group = group, .line = row.line});
  }

  const DatasetRequest& request_;
  const std::string path_;
  const std::vector<std::string> names_;
  const char delimiter_;
  std::optional<std::vector<size_t>> indices_;
  CsvRow row_;
  const bool has_captions_;
  JsonValues json_;
  const std::function<Status(const ListRow&)>& take_;
};

std::vector<std::string> list_columns(const config::ImageListDataset& list) {
  const std::string& target = list.fields.caption.empty() ? list.fields.label : list.fields.caption;
  return {list.fields.image.empty() ? "path" : list.fields.image,
          target.empty() ? "label" : target};
}

std::vector<std::string> read_columns(const DatasetRequest& request) {
  const auto& list = request.as<config::ImageListDataset>();
  std::vector<std::string> names = list_columns(list);
  if (request.config.splits_samples() && request.config.split_by == config::SplitBy::kGroup)
    names.push_back(list.fields.group);
  return names;
}

// Whether the extension is .csv, .tsv or .jsonl.
bool is_image_list_name(std::string_view name) {
  return is_json(name) || is_tabbed(name) || name.ends_with(".csv");
}

// Calls `on_row` for each row of the first file, and `on_bad` with the error of a row that is invalid or
// that `on_row` rejects.
Status read_list_rows(const DatasetRequest& request, const files::FileReader& reader,
                      const files::FileTable& files,
                      const std::function<Status(const ListRow&)>& on_row,
                      const std::function<void(const TextLine&, const Status&)>& on_bad) {
  ListReader list(request, files.path(0), on_row);
  const auto leave_out_bad = [&](const TextLine& row, const Status& status) -> Status {
    const bool is_bad = status.code() == StatusCode::kCorrupt ||
                        status.code() == StatusCode::kNotFound ||
                        status.code() == StatusCode::kInvalidArgument;
    if (!is_bad) return list.at(row, status);
    on_bad(row, status);
    return {};
  };
  if (is_json(files.path(0))) {
    return scan_lines(reader, files, 0, end_of_line,
                      [&](const TextLine& row) { return leave_out_bad(row, list.take_json(row)); });
  }
  const LineEnd line_end = [&list](std::string_view bytes) {
    return end_of_csv_row(bytes, list.delimiter());
  };
  return scan_lines(reader, files, 0, line_end, [&](const TextLine& row) {
    return list.has_header() ? leave_out_bad(row, list.take_csv(row)) : list.take_csv(row);
  });
}

namespace fs = std::filesystem;

constexpr uint64_t kProgressRows = 1 << 13;  // between two calls of progress
constexpr size_t kHead = 1;                  // numbers[0]: number of classes; then 1 per image

class ImageListReader final : public ImageReader {
 public:
  using ImageReader::ImageReader;

  uint64_t size() const override { return metadata().numbers.size() - kHead; }
  uint64_t classes() const override { return metadata().numbers[0]; }
  std::vector<std::string> class_names() const override {
    const std::vector<std::string>& names = metadata().names;
    return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(
                                               std::min<uint64_t>(names.size(), classes()))};
  }
  // The captions are known without reading the image, but they are no labels.
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    return has_captions() ? labels_unknown() : ImageReader::read_labels(first, labels);
  }
  uint64_t label(uint64_t record) const override { return metadata().numbers[kHead + record]; }

 private:
  // The names of the words, then the captions of each image.
  bool has_captions() const { return metadata().names.size() > classes(); }
  void read_caption(uint64_t record, record::RecordValues& values) const override {
    if (!has_captions()) return;
    values.fields[1] = std::as_bytes(std::span(metadata().names[classes() + record]));
  }

  // The list is the first file.
  size_t file_of(uint64_t record) const override { return record + 1; }
};

// The folder that the paths in the list are relative to: `root`, or the folder of the list.
std::string root_of(const config::ImageListDataset& list) {
  if (!list.root.empty()) return list.root;
  const std::string folder = fs::path(list.path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The path relative to the root, so that the dataset can be moved as a whole.
std::string name_below(const std::string& root, const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(root, ignored).lexically_normal();
  return fs::absolute(path, ignored).lexically_normal().lexically_relative(whole).string();
}

std::string image_name(const std::string& root, const ListRow& row) {
  return row.path.starts_with('/') ? name_below(root, fs::path(row.path)) : std::string(row.path);
}

Status add_file(const std::string& path, std::string_view name, files::FileTable& files) {
  files::FileTable found;
  STOKER_RETURN_IF_ERROR(files::scan_file(path, found));
  files.add(name, found.stamp(0));
  return {};
}

Result<std::string> image_list_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const transform::ImageDecoderInput input,
                          transform::ImageDecoderInput::of(request));
  const auto& list = request.as<config::ImageListDataset>();
  if (!is_image_list_name(list.path))
    return request.config_error("path", "must be a file whose name ends in .csv, .tsv or .jsonl");
  std::string text = "format=image_list " + split.to_text() + ' ' + input.to_text();
  for (const std::string& name : list_columns(list))
    text += " column=" + std::to_string(name.size()) + ':' + name;
  if (request.config.has_captions()) {
    STOKER_ASSIGN_OR_RETURN(const auto spec, record::SampleSpec::captioned(request, input));
    return text + ' ' + spec.caption_text();
  }
  return text + " num_classes=" + std::to_string(list.num_classes.value_or(0)) +
         record::class_names_text(list.class_names);
}

// The list is the first file; the images follow in the order of the list.
Result<files::FileTable> scan_image_list(const DatasetRequest& request,
                                         const files::ScanProgress& progress) {
  const auto& config = request.as<config::ImageListDataset>();
  files::FileTable list;
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "path", config.path, list));
  const std::string root = root_of(config);
  files::FileTable files(root);
  files.add(name_below(root, config.path), list.stamp(0));
  const files::FileReader reader(list);
  record::ClassLabels labels(config.class_names, record::text_labels_of(request.config));
  record::BadRecords bad(request, config.max_bad_record_rate);
  const Status read = read_list_rows(
      request, reader, list,
      [&](const ListRow& row) -> Status {
        if (!request.config.has_captions()) STOKER_RETURN_IF_ERROR(labels.add(row.label).status());
        if (files.size() % kProgressRows == 0) progress(files.size());
        const bool is_absolute = row.path.starts_with('/');
        return add_file(is_absolute ? std::string(row.path) : join_path(root, row.path),
                        image_name(root, row), files);
      },
      [&](const TextLine& row, const Status& why) {
        const std::string line = line_location_text(row.line);
        bad.add({.path = list.path(0),
                 .record = line,
                 .offset = row.offset,
                 .text = request.key("path") + ": " + list.path(0) + ": " + line},
                why);
      });
  if (!read.ok()) return request.with_path(read);
  if (bad.count() > 0 && !request.index_dir.empty())
    STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), std::string(request.index_dir)));
  STOKER_RETURN_IF_ERROR(bad.check(files.size() - 1 + bad.count()));
  if (files.size() > 1) return files;
  return Status(StatusCode::kNotFound,
                request.key("path") + ": " + config.path + " names no image");
}

// Calls `on_row` for each row that scan_image_list() has left in `files`, whose next image is the one
// with the number that `next` returns.
Status read_scanned_rows(const DatasetRequest& request, const files::FileTable& files,
                         const std::function<size_t()>& next,
                         const std::function<Status(const ListRow&)>& on_row) {
  const files::FileReader reader(files);
  const std::string root = root_of(request.as<config::ImageListDataset>());
  const Status read = read_list_rows(
      request, reader, files,
      [&](const ListRow& row) {
        const bool is_left = next() < files.size() && files.name(next()) == image_name(root, row);
        return is_left ? on_row(row) : Status();
      },
      [](const TextLine&, const Status&) {});
  if (!read.ok()) return request.with_path(read);
  if (next() == files.size()) return {};
  return Status(StatusCode::kCorrupt,
                request.key("path") + ": " + request.config.path() + " has changed just now");
}

// Numbers as for labels, all of them 0; names: those of the words, then the captions.
Result<files::IndexMetadata> build_caption_metadata(const DatasetRequest& request,
                                                    const files::FileTable& files,
                                                    const files::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(const auto image, transform::ImageDecoderInput::of(request));
  STOKER_ASSIGN_OR_RETURN(const auto spec, record::SampleSpec::captioned(request, image));
  files::IndexMetadata metadata;
  metadata.numbers = {spec.vocabulary->size()};
  metadata.names = spec.vocabulary->words();
  STOKER_RETURN_IF_ERROR(read_scanned_rows(
      request, files, [&] { return metadata.numbers.size(); },
      [&](const ListRow& row) -> Status {
        metadata.numbers.push_back(0);
        metadata.names.emplace_back(
            record::to_string_view(std::get<record::FieldBytes>(row.label)));
        if (row.group) metadata.groups.push_back(*row.group);
        if (metadata.numbers.size() % kProgressRows == 0)
          progress(metadata.numbers.size(), "captions");
        return {};
      }));
  return cache::pack_images(request, files, std::move(metadata), progress);
}

Result<files::IndexMetadata> build_image_list_metadata(const DatasetRequest& request,
                                                       const files::FileTable& files,
                                                       const files::ScanProgress& progress) {
  if (request.config.has_captions()) return build_caption_metadata(request, files, progress);
  record::ClassLabels labels(request.as<config::ImageListDataset>().class_names,
                             record::text_labels_of(request.config));
  files::IndexMetadata metadata;
  metadata.numbers.push_back(0);
  STOKER_RETURN_IF_ERROR(read_scanned_rows(
      request, files, [&] { return metadata.numbers.size(); },
      [&](const ListRow& row) -> Status {
        STOKER_ASSIGN_OR_RETURN(const uint64_t label, labels.add(row.label));
        if (labels.needs_location(label))
          labels.set_location(request.key("path") + ": " + request.config.path() + ": " +
                              line_location_text(row.line));
        metadata.numbers.push_back(label);
        if (row.group) metadata.groups.push_back(*row.group);
        if (metadata.numbers.size() % kProgressRows == 0)
          progress(metadata.numbers.size(), "labels");
        return {};
      }));
  auto classes = labels.finish(request);
  if (!classes) return classes.status();
  metadata.numbers[0] = classes->count;
  for (size_t i = kHead; i < metadata.numbers.size(); ++i)
    metadata.numbers[i] = classes->of_label[metadata.numbers[i]];
  metadata.names = std::move(classes->names);
  return cache::pack_images(request, files, std::move(metadata), progress);
}

Result<std::unique_ptr<Dataset>> open_image_list(const DatasetRequest& request,
                                                 files::Index index) {
  STOKER_ASSIGN_OR_RETURN(const transform::ImageDecoderInput input,
                          transform::ImageDecoderInput::of(request));
  const std::vector<uint64_t>& numbers = index.metadata.numbers;
  bool fits = numbers.size() > kHead && numbers.size() == index.files.size() &&
              cache::PackedFiles::fits(index.files, index.metadata);
  for (size_t i = kHead; fits && i < numbers.size(); ++i) fits = numbers[i] < numbers[0];
  if (!fits)
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index does not describe a list of images");
  record::SampleSpec spec = record::SampleSpec::labeled(input);
  if (request.config.has_captions()) {
    STOKER_ASSIGN_OR_RETURN(spec, record::SampleSpec::captioned(request, input));
    const uint64_t words = spec.vocabulary->size();
    if (numbers[0] != words || index.metadata.names.size() != words + numbers.size() - kHead)
      return Status(StatusCode::kCorrupt,
                    "data." + request.name + ": its index does not describe captions");
  }
  std::string fingerprint = index.fingerprint();
  return record::make_record_dataset(request, std::move(spec), std::move(fingerprint),
                                     std::make_unique<ImageListReader>(std::move(index)));
}

}  // namespace

const DatasetFormatOps& image_list_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "image_list",
                                               .fingerprint_text = image_list_fingerprint_text,
                                               .scan = scan_image_list,
                                               .build_metadata = build_image_list_metadata,
                                               .open = open_image_list};
  return kFormatOps;
}

}  // namespace stoker::data::format
