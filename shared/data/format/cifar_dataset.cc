// Formats `cifar10` and `cifar100`: the binary files of CIFAR-10 and CIFAR-100.
//
// A record is one label byte (CIFAR-100: coarse, then fine) and 3072 bytes: 32x32 red, then green,
// then blue.
#include <array>
#include <cassert>
#include <utility>

#include "shared/data/dataset_files.h"
#include "shared/data/format/byte_stream.h"
#include "shared/data/format/format.h"
#include "shared/data/record/record_dataset.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

constexpr uint64_t kPixels = 3 * 32 * 32;
constexpr size_t kMaxLabelBytes = 2;

// The class is the last label byte: in CIFAR-100 the fine label, in CIFAR-10 the only one.
uint64_t label_bytes(uint64_t classes) { return classes == 10 ? 1 : 2; }

class CifarReader final : public record::RecordReader {
 public:
  CifarReader(files::FileTable files, uint64_t classes)
      : stream_(std::move(files)), classes_(classes) {}

  uint64_t size() const override { return stream_.length() / record_bytes(); }
  uint64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    if (classes_ != 10) return {};
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  }
  std::vector<uint64_t> shard_ends() const override {
    return stream_.shard_ends(0, record_bytes(), size());
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& label : labels) {
      STOKER_ASSIGN_OR_RETURN(label, read_label(first++));
    }
    return {};
  }

  SampleSource source(uint64_t record) const override { return stream_.source(position(record)); }
  Status read(uint64_t record, record::RecordValues& values) const override {
    STOKER_ASSIGN_OR_RETURN(const int64_t label, read_label(record));
    if (static_cast<uint64_t>(label) >= classes_) {
      const SampleSource where = source(record);
      return Status(StatusCode::kCorrupt, where.file + ": label " + std::to_string(label) +
                                              " in the record at offset " +
                                              std::to_string(where.offset) + ", but there are " +
                                              std::to_string(classes_) + " classes");
    }
    values.label = static_cast<uint64_t>(label);
    const std::span<std::byte> pixels = values.input_tensor;
    assert(pixels.size() == kPixels);
    STOKER_RETURN_IF_ERROR(stream_.read(position(record) + label_bytes(classes_), pixels));
    values.fields[0] = record::FieldBytes(pixels);
    return {};
  }
  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const override {
    stream_.prefetch(position(record), label_bytes(classes_), bytes);
    stream_.prefetch(position(record) + label_bytes(classes_), kPixels, bytes);
  }

 private:
  uint64_t record_bytes() const { return label_bytes(classes_) + kPixels; }
  uint64_t position(uint64_t record) const { return record * record_bytes(); }
  Result<int64_t> read_label(uint64_t record) const {
    std::array<std::byte, kMaxLabelBytes> labels{};
    const auto stored = std::span(labels).first(label_bytes(classes_));
    STOKER_RETURN_IF_ERROR(stream_.read(position(record), stored));
    return std::to_integer<int64_t>(stored.back());
  }

  const ByteStream stream_;
  const uint64_t classes_;
};

uint64_t classes_of(const DatasetRequest& request) {
  return static_cast<uint64_t>(request.as<config::CifarDataset>().num_classes);
}

Result<std::string> cifar_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  return "format=cifar" + std::to_string(classes_of(request)) + ' ' + split.to_text();
}

Result<files::FileTable> scan_cifar(const DatasetRequest& request,
                                    const files::ScanProgress& progress) {
  return scan_source(request, classes_of(request) == 10 ? "data_batch_*.bin" : "train.bin",
                     progress);
}

// kCorrupt if a file is empty or does not end at a record boundary.
Status check_records(const DatasetRequest& request, const files::FileTable& files) {
  const uint64_t record = label_bytes(classes_of(request)) + kPixels;
  for (size_t file = 0; file < files.size(); ++file) {
    const uint64_t size = files.stamp(file).size;
    if (size == 0 || size % record != 0) {
      return Status(StatusCode::kCorrupt,
                    request.key("path") + ": " + files.path(file) + ": " + std::to_string(size) +
                        " bytes is not a whole number of records of " + std::to_string(record) +
                        " bytes (CIFAR-" + std::to_string(classes_of(request)) +
                        ", binary version)");
    }
  }
  return {};
}

Result<std::unique_ptr<Dataset>> open_cifar(const DatasetRequest& request, files::Index index) {
  STOKER_RETURN_IF_ERROR(check_records(request, index.files));
  std::string fingerprint = index.fingerprint();
  return record::make_record_dataset(
      request, record::SampleSpec::labeled({.dtype = DType::kU8, .shape = {3, 32, 32}}),
      std::move(fingerprint),
      std::make_unique<CifarReader>(std::move(index.files), classes_of(request)));
}

constexpr DatasetFormatOps cifar_ops(const char* name) {
  return {.name = name,
          .fingerprint_text = cifar_fingerprint_text,
          .scan = scan_cifar,
          .build_metadata = no_metadata,
          .open = open_cifar,
          .has_rows = true};
}

}  // namespace

const DatasetFormatOps& cifar10_format() {
  static constexpr DatasetFormatOps kFormatOps = cifar_ops("cifar10");
  return kFormatOps;
}

const DatasetFormatOps& cifar100_format() {
  static constexpr DatasetFormatOps kFormatOps = cifar_ops("cifar100");
  return kFormatOps;
}

}  // namespace stoker::data::format
