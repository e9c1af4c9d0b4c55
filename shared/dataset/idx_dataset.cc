// Format `idx`: one file of pictures and one of labels, as MNIST is distributed. One that is packed by
// gzip is unpacked beside the index, since samples are read in any order.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "shared/dataset/file_reader.h"
#include "shared/dataset/idx_file.h"
#include "shared/dataset/kept_bytes.h"
#include "shared/dataset/kind.h"
#include "shared/dataset/source.h"
#include "shared/dataset/split.h"

namespace stoker::dataset {
namespace {

constexpr size_t kPictures = 0, kLabels = 1;  // rows of the file table
constexpr uint64_t kPicturesHeader = kIdxPictures.header_bytes();
constexpr uint64_t kLabelsHeader = kIdxLabels.header_bytes();

struct IdxShape {
  uint64_t count = 0;
  uint64_t height = 0;
  uint64_t width = 0;
  uint64_t classes = 0;
  uint64_t picture_bytes() const { return height * width; }
};

class IdxDataset final : public Dataset {
 public:
  IdxDataset(std::string fingerprint, FileTable files, Part part, const IdxShape& shape)
      : fingerprint_(std::move(fingerprint)),
        files_(std::move(files)),
        reader_(files_),
        part_(part),
        shape_(shape),
        spec_{{.name = "input",
               .dtype = DType::kU8,
               .shape = {1, static_cast<int64_t>(shape.height), static_cast<int64_t>(shape.width)}},
              {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return part_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return shape_.classes; }
  const std::string& fingerprint() const override { return fingerprint_; }
  Origin origin(uint64_t sample) const override {
    return {.file = files_.path(kPictures), .offset = offset(sample)};
  }

  Status read(uint64_t sample, const DrawKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2 && outputs[0].size() == shape_.picture_bytes());
    STOKER_RETURN_IF_ERROR(reader_.read(kPictures, offset(sample), outputs[0]));
    std::byte stored{};
    const uint64_t where = label_offset(sample);
    const std::byte* const maybe_kept = maybe_labels_ ? maybe_labels_->maybe_at(sample) : nullptr;
    if (maybe_kept != nullptr) {
      stored = *maybe_kept;
    } else {
      STOKER_RETURN_IF_ERROR(reader_.read(kLabels, where, std::span(&stored, 1)));
    }
    const auto label = std::to_integer<int64_t>(stored);
    if (static_cast<uint64_t>(label) >= shape_.classes) {
      return Status(Code::kCorrupt, files_.path(kLabels) + ": label " + std::to_string(label) +
                                        " at offset " + std::to_string(where) +
                                        " was not there when the file was indexed");
    }
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return {};
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    std::vector<std::byte> stored(labels.size());
    STOKER_RETURN_IF_ERROR(reader_.read(kLabels, label_offset(first), stored));
    std::ranges::transform(stored, labels.begin(), std::to_integer<int64_t>);
    return {};
  }
  void prefetch(uint64_t sample, PrefetchedBytes& bytes) const override {
    reader_.prefetch(kPictures, offset(sample), shape_.picture_bytes(), bytes);
    if (!maybe_labels_) reader_.prefetch(kLabels, label_offset(sample), 1, bytes);
  }

  // Of a set that has no room: the labels, a byte each, for which every sample costs a second read.
  void keep_samples(uint64_t& room) const override {
    maybe_labels_ = KeptBytes::maybe_read(reader_, files_, kLabels, label_offset(0), size(), room);
  }

 private:
  uint64_t label_offset(uint64_t sample) const { return kLabelsHeader + part_.begin + sample; }
  uint64_t offset(uint64_t sample) const {
    return kPicturesHeader + (part_.begin + sample) * shape_.picture_bytes();
  }

  const std::string fingerprint_;
  const FileTable files_;
  const FileReader reader_;
  const Part part_;
  const IdxShape shape_;
  const std::vector<TensorSpec> spec_;

  // Set before the first read; own synchronisation.
  mutable std::unique_ptr<KeptBytes> maybe_labels_;
};

Status check_shape(const FileTable& files, const IdxShape& shape) {
  const uint64_t size = files.stamp(kPictures).size;
  // Two factors of 32 bits fit in 64; the third is divided out.
  const bool empty =
      size < kPicturesHeader || shape.count == 0 || shape.height == 0 || shape.width == 0;
  if (empty || (size - kPicturesHeader) % shape.picture_bytes() != 0 ||
      (size - kPicturesHeader) / shape.picture_bytes() != shape.count) {
    return Status(Code::kCorrupt, files.path(kPictures) + ": its header promises " +
                                      std::to_string(shape.count) + " pictures of " +
                                      std::to_string(shape.height) + "x" +
                                      std::to_string(shape.width) + ", which does not fit its " +
                                      std::to_string(size) + " bytes");
  }
  return {};
}

// One more than the largest label.
Result<uint64_t> count_classes(const FileReader& reader, uint64_t count) {
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

Result<std::vector<uint64_t>> read_facts(const FileTable& files) {
  const FileReader reader(files);
  STOKER_ASSIGN_OR_RETURN(const auto header,
                          read_idx_header(reader, files, kPictures, kIdxPictures));
  const IdxShape shape{.count = header[0], .height = header[1], .width = header[2], .classes = 0};
  STOKER_RETURN_IF_ERROR(check_shape(files, shape));
  STOKER_ASSIGN_OR_RETURN(const auto labels, read_idx_header(reader, files, kLabels, kIdxLabels));
  const uint64_t label_bytes = files.stamp(kLabels).size - kLabelsHeader;
  if (labels[0] != shape.count || label_bytes != shape.count) {
    return Status(Code::kCorrupt, files.path(kLabels) + ": " + std::to_string(labels[0]) +
                                      " labels in " + std::to_string(label_bytes) + " bytes, but " +
                                      std::to_string(shape.count) + " pictures in " +
                                      files.path(kPictures));
  }
  STOKER_ASSIGN_OR_RETURN(const uint64_t classes, count_classes(reader, shape.count));
  return std::vector<uint64_t>{shape.count, shape.height, shape.width, classes};
}

Result<std::string> idx_settings(const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const Split split, Split::of(set));
  if (set.as<config::IdxDataset>().labels_path.empty())
    return set.wrong("labels_path", "is required; set it to the file of the labels");
  return "format=idx " + split.to_text();
}

Result<FileTable> scan_idx(const SetRequest& set, const ScanProgress&) {
  FileTable files;
  const auto& idx = set.as<config::IdxDataset>();
  STOKER_RETURN_IF_ERROR(scan_source_file(set, "path", idx.path, files));
  STOKER_RETURN_IF_ERROR(scan_source_file(set, "labels_path", idx.labels_path, files));
  return files;
}

// The files to read: those of the user, or what was unpacked from them.
FileTable data_files(const FileTable& files, const FileTable& made, bool pictures_made,
                     bool labels_made) {
  FileTable data;
  size_t next = 0;
  for (const size_t file : {kPictures, kLabels}) {
    const bool is_made = file == kPictures ? pictures_made : labels_made;
    const FileTable& from = is_made ? made : files;
    const size_t row = is_made ? next++ : file;
    data.add(from.path(row), from.stamp(row));
  }
  return data;
}

Result<Facts> inspect_files(const SetRequest& set, const FileTable& files,
                            const ScanProgress& progress) {
  Facts facts;
  STOKER_ASSIGN_OR_RETURN(const bool pictures_made, unpack_idx(set, "path", files, kPictures,
                                                               kIdxPictures, progress, facts.made));
  STOKER_ASSIGN_OR_RETURN(const bool labels_made, unpack_idx(set, "labels", files, kLabels,
                                                             kIdxLabels, progress, facts.made));
  const FileTable data = data_files(files, facts.made, pictures_made, labels_made);
  STOKER_ASSIGN_OR_RETURN(facts.numbers, read_facts(data));
  facts.numbers.push_back(pictures_made);
  facts.numbers.push_back(labels_made);
  return facts;
}

Result<Facts> inspect_idx(const SetRequest& set, const FileTable& files,
                          const ScanProgress& progress) {
  auto facts = inspect_files(set, files, progress);
  if (!facts) return facts.status().with_context("data." + set.name);
  return facts;
}

Result<std::unique_ptr<Dataset>> open_idx(const SetRequest& set, Index index) {
  const std::vector<uint64_t>& facts = index.facts.numbers;
  const bool fits = facts.size() == 6 && index.files.size() == 2 && facts[3] != 0 &&
                    facts[4] <= 1 && facts[5] <= 1 &&
                    facts[4] + facts[5] == index.facts.made.size();
  if (!fits) {
    return Status(Code::kCorrupt,
                  "data." + set.name + ": its index does not describe an idx data set");
  }
  FileTable data = data_files(index.files, index.facts.made, facts[4] == 1, facts[5] == 1);
  const IdxShape shape{
      .count = facts[0], .height = facts[1], .width = facts[2], .classes = facts[3]};
  STOKER_RETURN_IF_ERROR(check_shape(data, shape));
  STOKER_ASSIGN_OR_RETURN(const Part part, part_of_samples(set, shape.count));
  return std::unique_ptr<Dataset>(
      std::make_unique<IdxDataset>(index.fingerprint(), std::move(data), part, shape));
}

}  // namespace

const Kind& idx_kind() {
  static constexpr Kind kKind{.name = "idx",
                              .settings = idx_settings,
                              .scan = scan_idx,
                              .inspect = inspect_idx,
                              .open = open_idx,
                              .has_rows = true};
  return kKind;
}

}  // namespace stoker::dataset
