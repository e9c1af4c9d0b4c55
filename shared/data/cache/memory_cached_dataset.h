// MemoryCachedDataset: a data set whose samples stay in memory, as the tensors they are, once they were read.
//
// A small sample costs more to ask the kernel for than to copy: two calls for 784 bytes take twenty
// times as long as the bytes. So the samples of a set that is small enough are read from its files
// once. Only for sets whose samples are the same each time and that have few files.
//
// Memory is what the process has of its own, taken page by page as samples come. Not a mapping of
// the files: one that is cut off would end the process, and one that is written to would change
// samples under the reader.
//
// Threads:  as Dataset; lock-free.
// Blocking: as Dataset; each tenth of a second one read has a look at the files' sizes and times.
// Errors:   those of the data set. Once a file is not as it was indexed, nothing is taken from memory
//           any more, and reading the files says what is wrong.
#pragma once

#include <memory>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::cache {

// `files`: all that the set reads. enable_memory_cache() begins it; without, it is the set itself.
std::unique_ptr<Dataset> with_memory_cache(std::unique_ptr<Dataset> dataset,
                                           std::vector<files::FileTable> files);

}  // namespace stoker::data::cache
