#include "shared/dataset/kept_bytes.h"

#include <new>
#include <utility>

namespace stoker::dataset {

std::unique_ptr<KeptBytes> KeptBytes::maybe_read(const FileReader& reader, const FileTable& files,
                                                 size_t file, uint64_t offset, uint64_t count,
                                                 uint64_t& room) {
  if (count > room) return nullptr;
  try {
    std::vector<std::byte> bytes(count);
    if (!reader.read(file, offset, bytes).ok()) return nullptr;
    FileTable watched;
    watched.add(files.path(file), files.stamp(file));
    room -= count;
    return std::unique_ptr<KeptBytes>(new KeptBytes(std::move(bytes), {std::move(watched)}));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace stoker::dataset
