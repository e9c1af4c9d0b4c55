// zip directory: which members an archive has and where their bytes lie; enough of zip to read what
// numpy writes (npz), ZIP64 among it.
//
// Threads: values.
// Errors:  kCorrupt (no archive, damaged, in several parts, encrypted), those of FileReader; each names
//          the file. Every length is compared with the file's before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/file_table.h"

namespace stoker::dataset {

struct ZipMember {
  std::string name;
  bool is_deflated = false;  // or stored
  uint32_t crc32 = 0;
  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;
  uint64_t local_header = 0;  // its offset in the file
};

// Whether the file begins as an archive does.
Result<bool> is_zip(const FileReader& reader, const FileTable& files, size_t file);
Result<std::vector<ZipMember>> read_zip_directory(const FileReader& reader, const FileTable& files,
                                                  size_t file);
// Where the member's (packed) bytes begin; all of them are then in the file.
Result<uint64_t> zip_data_offset(const FileReader& reader, const FileTable& files, size_t file,
                                 const ZipMember& member);

}  // namespace stoker::dataset
