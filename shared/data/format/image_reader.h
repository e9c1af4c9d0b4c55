// ImageReader: a RecordReader of encoded images, one file per image, possibly packed. The labels
// come from the index.
//
// Threads, blocking, errors: as RecordReader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "shared/data/cache/packed_images.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/record/record_reader.h"

namespace stoker::data::format {

class ImageReader : public record::RecordReader {
 public:
  explicit ImageReader(files::Index index)
      : files_(std::move(index.files)),
        bytes_(files_, index.metadata),
        metadata_(std::move(index.metadata)) {}

  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    for (int64_t& each : labels) each = static_cast<int64_t>(label(first++));
    return {};
  }
  SampleSource source(uint64_t record) const final {
    return {.file = files_.path(file_of(record)), .offset = 0};
  }
  Status read(uint64_t record, record::RecordValues& values) const final {
    thread_local std::vector<std::byte> file;
    STOKER_RETURN_IF_ERROR(bytes_.read(file_of(record), cache::kMaxImageFileBytes, file));
    values.fields[0] = record::FieldBytes(file);
    read_caption(record, values);
    return {};
  }
  void prefetch(uint64_t record, files::PrefetchedBytes& bytes) const final {
    bytes_.prefetch(file_of(record), cache::kMaxImageFileBytes, bytes);
  }

 protected:
  // Sets the second value if the images have captions.
  virtual void read_caption(uint64_t /*record*/, record::RecordValues& /*values*/) const {}
  const files::IndexMetadata& metadata() const { return metadata_; }
  // Index of the record's file in the file table.
  virtual size_t file_of(uint64_t record) const = 0;

 private:
  // Constant after construction.
  const files::FileTable files_;
  const cache::PackedFiles bytes_;
  const files::IndexMetadata metadata_;
};

}  // namespace stoker::data::format
