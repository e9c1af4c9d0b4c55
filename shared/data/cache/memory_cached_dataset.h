// MemoryCachedDataset: a dataset that keeps its samples in memory, as tensors, after they were
// read.
//
// For small samples the system calls cost more than the copy: two calls for 784 bytes take twenty
// times as long as copying them. So the samples of a dataset that is small enough are read from its
// files only once. Only for datasets whose samples are the same on each read and that have few
// files.
//
// The memory is private to the process and allocated page by page as samples are read. The files
// are not mapped, because truncating a mapped file would crash the process, and writing to it would
// change samples while they are read.
//
// Threads:  as Dataset; lock-free.
// Blocking: as Dataset; every 100 ms one read checks the sizes and times of the files.
// Errors:   those of the dataset. After a file has changed, the memory is no longer used, and
//           reading the files reports the error.
#pragma once

#include <memory>
#include <vector>

#include "shared/data/dataset.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::data::cache {

// Takes the memory for all samples from `budget`. Returns `dataset` itself if the budget or the
// address space is too small. `files`: all files that the dataset reads. Samples must have a fixed
// shape.
std::unique_ptr<Dataset> with_memory_cache(std::unique_ptr<Dataset> dataset,
                                           std::vector<files::FileTable> files,
                                           files::MemoryBudget& budget);

}  // namespace stoker::data::cache
