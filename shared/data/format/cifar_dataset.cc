// Formats `cifar10` and `cifar100`: the binary files of CIFAR-10 and CIFAR-100.
//
// A record is one label byte (CIFAR-100: coarse, then fine) and 3072 bytes: 32x32 red, then green,
// then blue.
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "shared/data/dataset_files.h"
#include "shared/data/format/byte_stream.h"
#include "shared/data/format/format.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

constexpr uint64_t kPixels = 3 * 32 * 32;
constexpr size_t kMaxLabelBytes = 2;

// The last label byte is the one that counts: 10 classes have no other.
uint64_t label_bytes(uint64_t classes) { return classes == 10 ? 1 : 2; }

class CifarDataset final : public Dataset {
 public:
  CifarDataset(files::Index index, SampleRange range, uint64_t classes)
      : fingerprint_(index.fingerprint()),
        stream_(std::move(index.files)),
        range_(range),
        classes_(classes),
        spec_{{.name = "input", .dtype = DType::kU8, .shape = {3, 32, 32}},
              {.name = "label", .dtype = DType::kI64, .shape = {}}} {}

  uint64_t size() const override { return range_.size(); }
  const std::vector<TensorSpec>& spec() const override { return spec_; }
  uint64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    if (classes_ != 10) return {};
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  }
  const std::string& fingerprint() const override { return fingerprint_; }
  SampleSource source(uint64_t sample) const override { return stream_.source(position(sample)); }
  std::vector<uint64_t> shard_ends() const override {
    return stream_.shard_ends(position(0), position(1) - position(0), size());
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2 && outputs[0].size() == kPixels);
    STOKER_ASSIGN_OR_RETURN(const int64_t label, label_of(sample));
    if (static_cast<uint64_t>(label) >= classes_) {
      const SampleSource where = source(sample);
      return Status(StatusCode::kCorrupt, where.file + ": label " + std::to_string(label) +
                                              " in the record at offset " +
                                              std::to_string(where.offset) + ", but there are " +
                                              std::to_string(classes_) + " classes");
    }
    std::memcpy(outputs[1].data(), &label, sizeof label);
    return stream_.read(position(sample) + label_bytes(classes_), outputs[0]);
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& label : labels) {
      STOKER_ASSIGN_OR_RETURN(label, label_of(first++));
    }
    return {};
  }
  void prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const override {
    stream_.prefetch(position(sample), label_bytes(classes_), bytes);
    stream_.prefetch(position(sample) + label_bytes(classes_), kPixels, bytes);
  }

 private:
  Result<int64_t> label_of(uint64_t sample) const {
    std::array<std::byte, kMaxLabelBytes> labels{};
    const auto stored = std::span(labels).first(label_bytes(classes_));
    STOKER_RETURN_IF_ERROR(stream_.read(position(sample), stored));
    return std::to_integer<int64_t>(stored.back());
  }
  uint64_t position(uint64_t sample) const {
    return (range_.begin + sample) * (label_bytes(classes_) + kPixels);
  }

  const std::string fingerprint_;
  const ByteStream stream_;
  const SampleRange range_;
  const uint64_t classes_;
  const std::vector<TensorSpec> spec_;
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

// The number of records in all files; kCorrupt when one is cut off.
Result<uint64_t> count_records(const DatasetRequest& request, const files::FileTable& files) {
  const uint64_t record = label_bytes(classes_of(request)) + kPixels;
  uint64_t records = 0;
  for (size_t file = 0; file < files.size(); ++file) {
    const uint64_t size = files.stamp(file).size;
    if (size == 0 || size % record != 0) {
      return Status(StatusCode::kCorrupt,
                    request.key("path") + ": " + files.path(file) + ": " + std::to_string(size) +
                        " bytes is not a whole number of records of " + std::to_string(record) +
                        " bytes (CIFAR-" + std::to_string(classes_of(request)) +
                        ", binary version)");
    }
    records += size / record;
  }
  return records;
}

Result<std::unique_ptr<Dataset>> open_cifar(const DatasetRequest& request, files::Index index) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t records, count_records(request, index.files));
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, records));
  return std::unique_ptr<Dataset>(
      std::make_unique<CifarDataset>(std::move(index), range, classes_of(request)));
}

}  // namespace

const DatasetFormatOps& cifar10_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "cifar10",
                                               .fingerprint_text = cifar_fingerprint_text,
                                               .scan = scan_cifar,
                                               .build_metadata = no_metadata,
                                               .open = open_cifar,
                                               .has_rows = true};
  return kFormatOps;
}

const DatasetFormatOps& cifar100_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "cifar100",
                                               .fingerprint_text = cifar_fingerprint_text,
                                               .scan = scan_cifar,
                                               .build_metadata = no_metadata,
                                               .open = open_cifar,
                                               .has_rows = true};
  return kFormatOps;
}

}  // namespace stoker::data::format
