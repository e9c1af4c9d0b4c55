// zip directory: which members an archive has and where their bytes lie; enough of zip to read what
// numpy (npz) and PyTorch (torch.save) write, ZIP64 among it.
//
// Threads: values.
// Errors:  kCorrupt (no archive, damaged, in several parts, encrypted), those of ArchiveFile::read;
//          each names the file. Every length is compared with the file's before anything is
//          allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::archive {

// A file as its owner reads it.
struct ArchiveFile {
  std::string path;  // for messages
  uint64_t size = 0;
  // Fills all of the bytes from the offset on, or fails.
  std::function<Status(uint64_t offset, std::span<std::byte> bytes)> read;
};

struct ZipMember {
  std::string name;
  bool is_deflated = false;  // or stored
  uint32_t crc32 = 0;
  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;
  uint64_t local_header = 0;  // its offset in the file
};

// Whether the file begins as an archive does.
Result<bool> is_zip(const ArchiveFile& file);
Result<std::vector<ZipMember>> read_zip_directory(const ArchiveFile& file);
// Where the member's (packed) bytes begin; all of them are then in the file.
Result<uint64_t> zip_data_offset(const ArchiveFile& file, const ZipMember& member);

}  // namespace stoker::archive
