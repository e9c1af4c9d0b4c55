// ByteStream: the files of a table as one contiguous stream of bytes.
//
// Threads:  read() can be called from any thread, concurrently.
// Blocking: read() for the disk.
// Errors:   those of FileReader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::format {

class ByteStream {
 public:
  explicit ByteStream(files::FileTable files);
  // The first `lengths[i]` bytes of each file.
  ByteStream(files::FileTable files, std::span<const uint64_t> lengths);
  ByteStream(const ByteStream&) = delete;  // the reader refers to the table
  ByteStream& operator=(const ByteStream&) = delete;

  // Total number of bytes. kCorrupt if the sum of the sizes does not fit in 63 bits.
  static Result<uint64_t> total_length(const files::FileTable& files);

  uint64_t length() const { return ends_.empty() ? 0 : ends_.back(); }
  // Requires position + bytes.size() <= length().
  Status read(uint64_t position, std::span<std::byte> bytes) const;
  void prefetch(uint64_t position, uint64_t count, files::PrefetchedBytes& bytes) const;
  SampleSource source(uint64_t position) const;
  // As Dataset::shard_ends(), with one shard per file, for `samples` >= 1 samples of which the i-th
  // starts at begin + i * stride. Files in which no sample starts are omitted.
  std::vector<uint64_t> shard_ends(uint64_t begin, uint64_t stride, uint64_t samples) const;

 private:
  size_t file_at(uint64_t position) const;
  uint64_t begin_of(size_t file) const { return file == 0 ? 0 : ends_[file - 1]; }

  // Constant after construction.
  const files::FileTable files_;
  const files::FileReader reader_;
  std::vector<uint64_t> ends_;  // end of each file, as a position in the stream
};

}  // namespace stoker::data::format
