// KeptBytes: a part of a file in memory, such as all labels of a set whose pictures have no room there.
//
// Threads:  any, after construction.
// Blocking: maybe_read() as the disk does; at() as FileWatch.
// Errors:   none: what cannot be read is not kept, and reading it tells why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared/dataset/file_reader.h"
#include "shared/dataset/file_table.h"
#include "shared/dataset/file_watch.h"

namespace stoker::dataset {

class KeptBytes {
 public:
  // Null where they have no room in `room` bytes, of which they are taken off; reads them at once.
  static std::unique_ptr<KeptBytes> maybe_read(const FileReader& reader, const FileTable& files,
                                               size_t file, uint64_t offset, uint64_t count,
                                               uint64_t& room);
  // The byte of that number, from `offset` on; null once the file is not as it was indexed.
  const std::byte* maybe_at(uint64_t number) {
    return watch_.all_as_indexed() ? &bytes_[number] : nullptr;
  }

 private:
  KeptBytes(std::vector<std::byte> bytes, std::vector<FileTable> watched)
      : bytes_(std::move(bytes)), watch_(std::move(watched)) {}

  const std::vector<std::byte> bytes_;
  FileWatch watch_;
};

}  // namespace stoker::dataset
