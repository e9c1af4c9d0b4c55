// InMemoryRange: a part of a file in memory, such as all labels of a set whose pictures have no room there.
//
// Threads:  any, after construction.
// Blocking: try_read() as the disk does; at() as FileChangeDetector.
// Errors:   none: what cannot be read is not kept, and reading it tells why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared/dataset/file_change_detector.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/file_table.h"

namespace stoker::dataset {

class InMemoryRange {
 public:
  // Null where they have no room in `budget` bytes, of which they are taken off; reads them at once.
  static std::unique_ptr<InMemoryRange> try_read(const FileReader& reader, const FileTable& files,
                                                 size_t file, uint64_t offset, uint64_t count,
                                                 uint64_t& budget);
  // The byte of that number, from `offset` on; null once the file is not as it was indexed.
  const std::byte* try_get(uint64_t number) {
    return change_detector_.is_unchanged() ? &bytes_[number] : nullptr;
  }

 private:
  InMemoryRange(std::vector<std::byte> bytes, std::vector<FileTable> watched)
      : bytes_(std::move(bytes)), change_detector_(std::move(watched)) {}

  const std::vector<std::byte> bytes_;
  FileChangeDetector change_detector_;
};

}  // namespace stoker::dataset
