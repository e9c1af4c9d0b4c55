// Format `idx`: one file of images and one of labels, as MNIST is distributed. A gzip-compressed
// file is decompressed next to the index, because samples are read in random order.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_files.h"
#include "shared/data/dataset_request.h"
#include "shared/data/file_kind.h"
#include "shared/data/files/decompressed_file.h"
#include "shared/data/files/file_change_detector.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/files/scan.h"
#include "shared/data/format/format.h"
#include "shared/data/record/class_labels.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

// InMemoryRange: a range of a file in memory, such as all labels of a dataset whose images do not
// fit.
//
// Threads:  any, after construction.
// Blocking: try_read() for the disk; try_get() as FileChangeDetector.
// Errors:   none: a range that cannot be read is not cached, and reading the file directly reports
//           the error.
class InMemoryRange {
 public:
  // Reads the range and takes its size from `budget`. Null if it exceeds the budget or cannot be
  // read.
  static std::unique_ptr<InMemoryRange> try_read(const files::FileReader& reader,
                                                 const files::FileTable& files, size_t file,
                                                 uint64_t offset, uint64_t count,
                                                 files::MemoryBudget& budget);
  // The byte at index `number` of the range; null after the file has changed since it was indexed.
  const std::byte* try_get(uint64_t number) {
    return change_detector_.is_unchanged() ? &bytes_[number] : nullptr;
  }

 private:
  InMemoryRange(std::vector<std::byte> bytes, std::vector<files::FileTable> watched)
      : bytes_(std::move(bytes)), change_detector_(std::move(watched)) {}

  const std::vector<std::byte> bytes_;
  files::FileChangeDetector change_detector_;
};

std::unique_ptr<InMemoryRange> InMemoryRange::try_read(const files::FileReader& reader,
                                                       const files::FileTable& files, size_t file,
                                                       uint64_t offset, uint64_t count,
                                                       files::MemoryBudget& budget) {
  if (!budget.try_take(count)) return nullptr;
  try {
    std::vector<std::byte> bytes(count);
    if (reader.read(file, offset, bytes).ok()) {
      files::FileTable watched;
      watched.add(files.path(file), files.stamp(file));
      return std::unique_ptr<InMemoryRange>(
          new InMemoryRange(std::move(bytes), {std::move(watched)}));
    }
  } catch (const std::bad_alloc&) {
  }
  budget.release(count);
  return nullptr;
}

// idx file: reads the headers of MNIST files and decompresses gzip-compressed files.
//
// Threads: free functions.
// Errors:  kCorrupt (not an idx file of this type, or a header that does not match the file), those
//          of FileReader and of decompress_file(); each includes the file.
// Format:  u32 magic, then u32 numbers (images: count, height, width; labels: count), all
//          big-endian, then one byte per pixel or label.
struct IdxLayout {
  uint32_t magic;
  size_t numbers;  // after the magic
  std::string_view holds;
  constexpr uint64_t header_bytes() const { return 4 * (1 + numbers); }
};
inline constexpr IdxLayout kIdxImages{.magic = 0x803, .numbers = 3, .holds = "images"};
inline constexpr IdxLayout kIdxLabels{.magic = 0x801, .numbers = 1, .holds = "labels"};

constexpr std::array kGzipMagic{std::byte{0x1f}, std::byte{0x8b}};
constexpr size_t kMaxHeaderBytes = 16;

uint32_t big_endian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

Result<std::vector<uint32_t>> parse_header(std::span<const std::byte> bytes,
                                           const std::string& path, const IdxLayout& layout) {
  if (const Status kind = reject_other_kind(bytes, "an idx file"); !kind.ok())
    return kind.with_context(path);
  if (bytes.size() < layout.header_bytes()) {
    return Status(StatusCode::kCorrupt, path + ": " + std::to_string(bytes.size()) +
                                            " bytes are too few for an idx file");
  }
  if (const uint32_t found = big_endian(bytes.data()); found != layout.magic) {
    return Status(StatusCode::kCorrupt, path + ": begins with " + std::to_string(found) +
                                            ", an idx file of " + std::string(layout.holds) +
                                            " with " + std::to_string(layout.magic));
  }
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < layout.numbers; ++i)
    numbers.push_back(big_endian(bytes.data() + 4 * (i + 1)));
  return numbers;
}

// Size of the file that the header declares.
Result<uint64_t> declared_bytes(const std::vector<uint32_t>& header, const std::string& path,
                                const IdxLayout& layout) {
  uint64_t bytes = 1;
  bool fits = true;
  for (const uint32_t number : header)
    fits = fits && !__builtin_mul_overflow(bytes, uint64_t{number}, &bytes);
  fits = fits && !__builtin_add_overflow(bytes, layout.header_bytes(), &bytes);
  if (!fits)
    return Status(StatusCode::kCorrupt,
                  path + ": its header declares more than any file can contain");
  return bytes;
}

Result<bool> is_gzip(const files::FileReader& reader, const files::FileTable& files, size_t file) {
  std::array<std::byte, 2> first{};
  if (files.stamp(file).size < first.size()) return false;
  STOKER_RETURN_IF_ERROR(reader.read(file, 0, first));
  return first == kGzipMagic;
}

// The numbers after the magic.
Result<std::vector<uint32_t>> read_idx_header(const files::FileReader& reader,
                                              const files::FileTable& files, size_t file,
                                              const IdxLayout& layout) {
  std::array<std::byte, kMaxHeaderBytes> bytes;
  const size_t wanted = std::min(layout.header_bytes(), files.stamp(file).size);
  const auto head = std::span(bytes).first(wanted);
  STOKER_RETURN_IF_ERROR(reader.read(file, 0, head));
  return parse_header(head, files.path(file), layout);
}

// If `file` is gzip-compressed, decompresses it next to the index under the name of `field`,
// appends the new file to `made` and returns true. decompress_file() checks the size that the
// header declares.
Result<bool> decompress_idx(const DatasetRequest& request, std::string_view field,
                            const files::FileTable& files, size_t file, const IdxLayout& layout,
                            const files::ScanProgress& progress, files::FileTable& made) {
  const files::FileReader reader(files);
  STOKER_ASSIGN_OR_RETURN(const bool packed, is_gzip(reader, files, file));
  if (!packed) return false;
  const files::Packed from{.format = files::Packed::Format::kGzip,
                           .file = file,
                           .offset = 0,
                           .bytes = files.stamp(file).size};
  STOKER_ASSIGN_OR_RETURN(files::Inflater inflater, files::Inflater::open(reader, files, from));
  std::array<std::byte, kMaxHeaderBytes> bytes;
  const auto head = std::span(bytes).first(layout.header_bytes());
  STOKER_ASSIGN_OR_RETURN(const size_t got, inflater.read(head));
  const std::string path = files.path(file);
  STOKER_ASSIGN_OR_RETURN(const auto header, parse_header(head.first(got), path, layout));
  STOKER_ASSIGN_OR_RETURN(const uint64_t declared, declared_bytes(header, path, layout));
  STOKER_RETURN_IF_ERROR(files::decompress_file(reader, files, {.from = from, .bytes = declared},
                                                request.derived_file(field, "decompressed"),
                                                progress, made));
  return true;
}

constexpr size_t kImages = 0, kLabels = 1;  // rows of the file table
constexpr uint64_t kImagesHeader = kIdxImages.header_bytes();
constexpr uint64_t kLabelsHeader = kIdxLabels.header_bytes();

struct IdxShape {
  uint64_t count = 0;
  uint64_t height = 0;
  uint64_t width = 0;
  uint64_t classes = 0;
  uint64_t image_bytes() const { return height * width; }
};

class IdxReader final : public record::RecordReader {
 public:
  IdxReader(files::FileTable files, const IdxShape& shape, std::vector<std::string> class_names)
      : files_(std::move(files)),
        reader_(files_),
        shape_(shape),
        class_names_(std::move(class_names)) {}

  uint64_t size() const override { return shape_.count; }
  uint64_t classes() const override { return shape_.classes; }
  std::vector<std::string> class_names() const override { return class_names_; }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    std::vector<std::byte> stored(labels.size());
    STOKER_RETURN_IF_ERROR(reader_.read(kLabels, label_offset(first), stored));
    std::ranges::transform(stored, labels.begin(), std::to_integer<int64_t>);
    return {};
  }

  SampleSource source(uint64_t record) const override {
    return {.file = files_.path(kImages), .offset = offset(record)};
  }
  Status read(uint64_t record, record::RecordValues& values) const override {
    const std::span<std::byte> pixels = values.input_tensor;
    assert(pixels.size() == shape_.image_bytes());
    STOKER_RETURN_IF_ERROR(reader_.read(kImages, offset(record), pixels));
    values.fields[0] = record::FieldBytes(pixels);
    std::byte stored{};
    const uint64_t where = label_offset(record);
    const std::byte* const maybe_cached =
        maybe_labels_ ? maybe_labels_->try_get(record - first_label_) : nullptr;
    if (maybe_cached != nullptr) {
      stored = *maybe_cached;
    } else {
      STOKER_RETURN_IF_ERROR(reader_.read(kLabels, where, {&stored, 1}));
    }
    values.label = std::to_integer<uint64_t>(stored);
    if (values.label < shape_.classes) return {};
    return Status(StatusCode::kCorrupt,
                  files_.path(kLabels) + ": label " + std::to_string(values.label) + " at offset " +
                      std::to_string(where) + " was not there when the file was indexed");
  }
  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override {
    reader_.prefetch(kImages, offset(record), shape_.image_bytes(), bytes);
    if (!maybe_labels_) reader_.prefetch(kLabels, label_offset(record), 1, bytes);
  }

  // Keeps the labels of these records in memory, one byte each, which saves the second read of a
  // sample if the images do not fit. Must be called before the first read().
  void cache_labels(const SampleRange& range, files::MemoryBudget& budget) {
    first_label_ = range.begin;
    maybe_labels_ = InMemoryRange::try_read(reader_, files_, kLabels, label_offset(range.begin),
                                            range.size(), budget);
  }

 private:
  static uint64_t label_offset(uint64_t record) { return kLabelsHeader + record; }
  uint64_t offset(uint64_t record) const { return kImagesHeader + record * shape_.image_bytes(); }

  // Constant after construction.
  const files::FileTable files_;
  const files::FileReader reader_;
  const IdxShape shape_;
  const std::vector<std::string> class_names_;

  // Set before the first read; synchronized internally.
  std::unique_ptr<InMemoryRange> maybe_labels_;
  uint64_t first_label_ = 0;  // record of the first cached label
};

Status check_shape(const files::FileTable& files, const IdxShape& shape) {
  const uint64_t size = files.stamp(kImages).size;
  // The product of two 32-bit factors fits in 64 bits; the third is checked by division.
  const bool empty =
      size < kImagesHeader || shape.count == 0 || shape.height == 0 || shape.width == 0;
  if (empty || (size - kImagesHeader) % shape.image_bytes() != 0 ||
      (size - kImagesHeader) / shape.image_bytes() != shape.count) {
    return Status(StatusCode::kCorrupt,
                  files.path(kImages) + ": its header declares " + std::to_string(shape.count) +
                      " images of " + std::to_string(shape.height) + "x" +
                      std::to_string(shape.width) + ", which does not fit its " +
                      std::to_string(size) + " bytes");
  }
  return {};
}

// One more than the largest label.
Result<uint64_t> count_classes(const files::FileReader& reader, uint64_t count) {
  std::vector<std::byte> labels(std::min<uint64_t>(count, 1 << 16));
  uint64_t largest = 0;
  for (uint64_t at = 0; at < count; at += labels.size()) {
    const auto chunk = std::span(labels).first(std::min<uint64_t>(labels.size(), count - at));
    STOKER_RETURN_IF_ERROR(reader.read(kLabels, kLabelsHeader + at, chunk));
    for (const std::byte label : chunk)
      largest = std::max(largest, std::to_integer<uint64_t>(label));
  }
  return largest + 1;
}

Result<std::vector<uint64_t>> read_metadata(const files::FileTable& files) {
  const files::FileReader reader(files);
  STOKER_ASSIGN_OR_RETURN(const auto header, read_idx_header(reader, files, kImages, kIdxImages));
  const IdxShape shape{.count = header[0], .height = header[1], .width = header[2], .classes = 0};
  STOKER_RETURN_IF_ERROR(check_shape(files, shape));
  STOKER_ASSIGN_OR_RETURN(const auto labels, read_idx_header(reader, files, kLabels, kIdxLabels));
  const uint64_t label_bytes = files.stamp(kLabels).size - kLabelsHeader;
  if (labels[0] != shape.count || label_bytes != shape.count) {
    return Status(StatusCode::kCorrupt, files.path(kLabels) + ": " + std::to_string(labels[0]) +
                                            " labels in " + std::to_string(label_bytes) +
                                            " bytes, but " + std::to_string(shape.count) +
                                            " images in " + files.path(kImages));
  }
  STOKER_ASSIGN_OR_RETURN(const uint64_t classes, count_classes(reader, shape.count));
  return std::vector<uint64_t>{shape.count, shape.height, shape.width, classes};
}

Result<std::string> idx_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  if (request.as<config::IdxDataset>().labels_path.empty())
    return request.config_error("labels_path", "is required; set it to the file of the labels");
  return "format=idx " + split.to_text() + record::class_names_text(request.config.class_names());
}

Result<files::FileTable> scan_idx(const DatasetRequest& request, const files::ScanProgress&) {
  files::FileTable files;
  const auto& idx = request.as<config::IdxDataset>();
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "path", idx.path, files));
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "labels_path", idx.labels_path, files));
  return files;
}

// The files to read: for each, the user's or its decompressed copy.
files::FileTable data_files(const files::FileTable& files, const files::FileTable& made,
                            bool images_created, bool labels_created) {
  files::FileTable data;
  size_t next = 0;
  for (const size_t file : {kImages, kLabels}) {
    const bool is_made = file == kImages ? images_created : labels_created;
    const files::FileTable& from = is_made ? made : files;
    const size_t row = is_made ? next++ : file;
    data.add(from.path(row), from.stamp(row));
  }
  return data;
}

Result<files::IndexMetadata> read_file_headers(const DatasetRequest& request,
                                               const files::FileTable& files,
                                               const files::ScanProgress& progress) {
  files::IndexMetadata metadata;
  STOKER_ASSIGN_OR_RETURN(
      const bool images_created,
      decompress_idx(request, "path", files, kImages, kIdxImages, progress, metadata.made));
  STOKER_ASSIGN_OR_RETURN(
      const bool labels_created,
      decompress_idx(request, "labels", files, kLabels, kIdxLabels, progress, metadata.made));
  const files::FileTable data = data_files(files, metadata.made, images_created, labels_created);
  STOKER_ASSIGN_OR_RETURN(metadata.numbers, read_metadata(data));
  metadata.numbers.push_back(images_created);
  metadata.numbers.push_back(labels_created);
  return metadata;
}

Result<files::IndexMetadata> build_idx_metadata(const DatasetRequest& request,
                                                const files::FileTable& files,
                                                const files::ScanProgress& progress) {
  auto metadata = read_file_headers(request, files, progress);
  if (!metadata) return metadata.status().with_context("data." + request.name);
  return metadata;
}

Result<std::unique_ptr<Dataset>> open_idx(const DatasetRequest& request, files::Index index) {
  const std::vector<uint64_t>& metadata = index.metadata.numbers;
  const bool fits = metadata.size() == 6 && index.files.size() == 2 && metadata[3] != 0 &&
                    metadata[4] <= 1 && metadata[5] <= 1 &&
                    metadata[4] + metadata[5] == index.metadata.made.size();
  if (!fits) {
    return Status(StatusCode::kCorrupt,
                  "data." + request.name + ": its index does not describe an idx dataset");
  }
  files::FileTable data =
      data_files(index.files, index.metadata.made, metadata[4] == 1, metadata[5] == 1);
  IdxShape shape{
      .count = metadata[0], .height = metadata[1], .width = metadata[2], .classes = metadata[3]};
  STOKER_RETURN_IF_ERROR(check_shape(data, shape));
  std::vector<std::string> names = request.config.class_names();
  if (!names.empty() && names.size() < shape.classes)
    return request.config_error("class_names", "has " + std::to_string(names.size()) +
                                                   " names, but a label is " +
                                                   std::to_string(shape.classes - 1));
  shape.classes = std::max<uint64_t>(shape.classes, names.size());
  record::FieldSpec input{
      .dtype = DType::kU8,
      .shape = {1, static_cast<int64_t>(shape.height), static_cast<int64_t>(shape.width)}};
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, shape.count));
  auto records = std::make_unique<IdxReader>(std::move(data), shape, std::move(names));
  if (request.maybe_cache_budget != nullptr)
    records->cache_labels(range, *request.maybe_cache_budget);
  return record::make_record_dataset(record::SampleSpec::labeled(std::move(input)),
                                     index.fingerprint(), std::move(records), range);
}

}  // namespace

const DatasetFormatOps& idx_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "idx",
                                               .fingerprint_text = idx_fingerprint_text,
                                               .scan = scan_idx,
                                               .build_metadata = build_idx_metadata,
                                               .open = open_idx,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
