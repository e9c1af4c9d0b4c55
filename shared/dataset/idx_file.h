// idx file: the header of MNIST's files, and how one that is packed by gzip is made readable.
//
// Threads: free functions.
// Errors:  kCorrupt (not an idx file of this kind, or its header lies), those of FileReader and of
//          decompress_file(); each names the file.
// Format:  u32 magic, then u32 numbers (pictures: count, height, width; labels: count), all
//          big-endian, then a byte a pixel or label.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/format.h"

namespace stoker::dataset {

struct IdxLayout {
  uint32_t magic;
  size_t numbers;  // after the magic
  std::string_view holds;
  constexpr uint64_t header_bytes() const { return 4 * (1 + numbers); }
};
inline constexpr IdxLayout kIdxImages{.magic = 0x803, .numbers = 3, .holds = "images"};
inline constexpr IdxLayout kIdxLabels{.magic = 0x801, .numbers = 1, .holds = "labels"};

// The numbers after the magic.
Result<std::vector<uint32_t>> read_idx_header(const FileReader& reader, const FileTable& files,
                                              size_t file, const IdxLayout& layout);

// Where `file` is packed by gzip, unpacks it beside the index, under the name of `field`; true then,
// and the file that was made is appended to `made`. The header is believed only as far as the packed
// bytes can bear it out.
Result<bool> decompress_idx(const DatasetRequest& request, std::string_view field,
                            const FileTable& files, size_t file, const IdxLayout& layout,
                            const ScanProgress& progress, FileTable& made);

}  // namespace stoker::dataset
