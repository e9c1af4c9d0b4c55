// Format `image_list`: pictures and their labels as a table names them, a .csv, .tsv or .jsonl file.
#include <cassert>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/dataset/class_labels.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/format.h"
#include "shared/dataset/image_decoder_input.h"
#include "shared/dataset/list_rows.h"
#include "shared/dataset/packed_files.h"
#include "shared/dataset/packed_images.h"
#include "shared/dataset/scan.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split_fraction.h"

namespace stoker::dataset {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kProgressRows = 1 << 13;  // between two calls of progress
constexpr size_t kHead = 1;                  // of the facts: classes; then a class a picture

class ListDataset final : public Dataset {
 public:
  ListDataset(Index index, SampleRange range, const ImageDecoderInput& input)
      : fingerprint_(index.fingerprint()),
        files_(std::move(index.files)),
        bytes_(files_, index.metadata),
        metadata_(std::move(index.metadata)),
        range_(range),
        input_(input),
        spec_{input.spec(), {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return range_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return metadata_.numbers[0]; }
  std::vector<std::string> class_names() const override { return metadata_.names; }
  const std::string& fingerprint() const override { return fingerprint_; }
  SampleSource source(uint64_t sample) const override {
    return {.file = files_.path(file_of(sample)), .offset = 0};
  }

  std::string describe_transforms(uint64_t sample, const RandomKey& random_key) const override {
    std::vector<std::byte> file;
    const Status read = bytes_.read(file_of(sample), kMaxImageFileBytes, file);
    return read.ok() ? input_.describe_transforms(file, random_key) : std::string();
  }

  Status read(uint64_t sample, const RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2);
    thread_local std::vector<std::byte> file;
    STOKER_RETURN_IF_ERROR(bytes_.read(file_of(sample), kMaxImageFileBytes, file));
    const Status decoded = input_.read(file, random_key, outputs[0]);
    if (!decoded.ok()) return decoded.with_context(files_.path(file_of(sample)));
    const int64_t label = label_of(sample);
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& label : labels) label = label_of(first++);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    bytes_.prefetch(file_of(sample), kMaxImageFileBytes, bytes);
  }

 private:
  // The list is the first file.
  size_t file_of(uint64_t sample) const { return range_.begin + sample + 1; }
  int64_t label_of(uint64_t sample) const {
    return static_cast<int64_t>(metadata_.numbers[kHead + range_.begin + sample]);
  }

  const std::string fingerprint_;
  const FileTable files_;
  const PackedFiles bytes_;
  const IndexMetadata metadata_;
  const SampleRange range_;
  const ImageDecoderInput input_;
  const std::vector<TensorSpec> spec_;
};

// What the paths of the list are relative to: `root`, or the folder that the list lies in.
std::string root_of(const config::ImageListDataset& list) {
  if (!list.root.empty()) return list.root;
  const std::string folder = fs::path(list.path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A path as a name below the root, so that the set may be moved with it.
std::string name_below(const std::string& root, const fs::path& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(root, ignored).lexically_normal();
  return fs::absolute(path, ignored).lexically_normal().lexically_relative(whole).string();
}

Status add_file(const std::string& path, std::string_view name, FileTable& files) {
  FileTable found;
  STOKER_RETURN_IF_ERROR(scan_file(path, found));
  files.add(name, found.stamp(0));
  return {};
}

Result<std::string> image_list_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const ImageDecoderInput input, ImageDecoderInput::of(request));
  const auto& list = request.as<config::ImageListDataset>();
  if (!is_image_list_name(list.path))
    return request.config_error("path", "must be a file whose name ends in .csv, .tsv or .jsonl");
  std::string text = "format=image_list " + split.to_text() + ' ' + input.to_text();
  for (const std::string& name : list_columns(list))
    text += " column=" + std::to_string(name.size()) + ':' + name;
  return text + " num_classes=" + std::to_string(list.num_classes.value_or(0));
}

// The list itself is the first file, then the pictures in its order.
Result<FileTable> scan_image_list(const DatasetRequest& request, const ScanProgress& progress) {
  const auto& config = request.as<config::ImageListDataset>();
  FileTable list;
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "path", config.path, list));
  const std::string root = root_of(config);
  FileTable files(root);
  files.add(name_below(root, config.path), list.stamp(0));
  const FileReader reader(list);
  const Status read = read_list_rows(request, reader, list, [&](const ListRow& row) {
    const bool is_absolute = row.path.starts_with('/');
    const std::string name =
        is_absolute ? name_below(root, fs::path(row.path)) : std::string(row.path);
    if (files.size() % kProgressRows == 0) progress(files.size());
    return add_file(is_absolute ? std::string(row.path) : join_path(root, row.path), name, files);
  });
  if (!read.ok()) return read.with_context(request.key("path"));
  if (files.size() > 1) return files;
  return Status(StatusCode::kNotFound,
                request.key("path") + ": " + config.path + " names no image");
}

Result<IndexMetadata> build_image_list_metadata(const DatasetRequest& request,
                                                const FileTable& files,
                                                const ScanProgress& progress) {
  const FileReader reader(files);
  ClassLabels labels;
  IndexMetadata metadata;
  metadata.numbers.push_back(0);
  const Status read = read_list_rows(request, reader, files, [&](const ListRow& row) -> Status {
    STOKER_ASSIGN_OR_RETURN(const uint64_t label, labels.add(row.label));
    metadata.numbers.push_back(label);
    if (metadata.numbers.size() % kProgressRows == 0) progress(metadata.numbers.size(), "labels");
    return {};
  });
  if (!read.ok()) return read.with_context(request.key("path"));
  if (metadata.numbers.size() != files.size())
    return Status(StatusCode::kCorrupt,
                  request.key("path") + ": " + request.config.path() + " has changed just now");
  auto classes = labels.finish(static_cast<uint64_t>(request.config.num_classes().value_or(0)));
  if (!classes) return request.config_error("num_classes", classes.status().message());
  metadata.numbers[0] = classes->count;
  for (size_t i = kHead; i < metadata.numbers.size(); ++i)
    metadata.numbers[i] = classes->of_label[metadata.numbers[i]];
  metadata.names = std::move(classes->names);
  return pack_images(request, files, std::move(metadata), progress);
}

Result<std::unique_ptr<Dataset>> open_image_list(const DatasetRequest& request, Index index) {
  STOKER_ASSIGN_OR_RETURN(const ImageDecoderInput input, ImageDecoderInput::of(request));
  const std::vector<uint64_t>& numbers = index.metadata.numbers;
  bool fits = numbers.size() > kHead && numbers.size() == index.files.size() &&
              PackedFiles::fits(index.files, index.metadata);
  for (size_t i = kHead; fits && i < numbers.size(); ++i) fits = numbers[i] < numbers[0];
  if (!fits)
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index does not describe a list of images");
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, numbers.size() - kHead));
  return std::unique_ptr<Dataset>(std::make_unique<ListDataset>(std::move(index), range, input));
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

}  // namespace stoker::dataset
