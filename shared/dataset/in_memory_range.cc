#include "shared/dataset/in_memory_range.h"

#include <new>
#include <utility>

namespace stoker::dataset {

std::unique_ptr<InMemoryRange> InMemoryRange::try_read(const FileReader& reader,
                                                       const FileTable& files, size_t file,
                                                       uint64_t offset, uint64_t count,
                                                       uint64_t& budget) {
  if (count > budget) return nullptr;
  try {
    std::vector<std::byte> bytes(count);
    if (!reader.read(file, offset, bytes).ok()) return nullptr;
    FileTable watched;
    watched.add(files.path(file), files.stamp(file));
    budget -= count;
    return std::unique_ptr<InMemoryRange>(
        new InMemoryRange(std::move(bytes), {std::move(watched)}));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace stoker::dataset
