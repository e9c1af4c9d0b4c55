// zip: lists the members of zip archives with their offsets, and writes archives. Implements the
// subset of zip, including ZIP64, that numpy (npz) and PyTorch (torch.save) write.
//
// Threads:  values; one object per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/status.h"

namespace stoker::archive {

// ---- Reading
//
// Errors:   kCorrupt (not an archive, corrupt, split into several parts, encrypted), and the errors
//           of ArchiveFile::read. Each message contains the path. Every length is checked against
//           the file size before memory is allocated.

// Access to a file through callbacks of its owner.
struct ArchiveFile {
  std::string path;  // for error messages
  uint64_t size = 0;
  // Fills all of `bytes` from `offset`, or fails.
  std::function<Status(uint64_t offset, std::span<std::byte> bytes)> read;
};

struct ZipMember {
  std::string name;
  bool is_deflated = false;  // otherwise stored
  uint32_t crc32 = 0;
  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;
  uint64_t local_header = 0;  // offset in the file
};

// True if the file starts with a zip signature.
Result<bool> is_zip(const ArchiveFile& file);
Result<std::vector<ZipMember>> read_zip_directory(const ArchiveFile& file);
// Offset of the member's (packed) bytes. Verifies that all of them are within the file.
Result<uint64_t> zip_data_offset(const ArchiveFile& file, const ZipMember& member);

// ZipWriter: writes an archive of stored (uncompressed) members sequentially and in pieces, so that
// no member has to fit in memory.
//
// Errors:   those of the sink; after an error the archive must not be used.
// Format:   as PyTorch writes its archives. The checksum follows the data, which starts at a
//           multiple of the requested alignment (an extra field "FB" adds the padding). ZIP64 is
//           used if a length, an offset or the number of members requires it.
class ZipWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // Starts a member of `bytes` bytes; the previous member must be complete. `alignment` is at most
  // 1024.
  Status begin(const std::string& name, uint64_t bytes, uint64_t alignment = 1);
  Status append(std::span<const std::byte> bytes);
  // Writes a small member with one call.
  Status add(const std::string& name, const std::string& content);
  // Finishes the last member and writes the directory.
  Status finish();

 private:
  struct Member {
    std::string name;
    uint64_t bytes = 0;
    uint64_t local_header = 0;
    uint32_t crc32 = 0;
    uint64_t written = 0;

    bool is_large() const;
  };

  Status put(const std::string& record);
  Status end_member();
  Status put_directory_entry(const Member& member);
  Status put_end(uint64_t directory);

  const Sink sink_;
  std::vector<Member> members_;
  uint64_t offset_ = 0;   // bytes written
  bool is_open_ = false;  // the last member is not finished yet
};

}  // namespace stoker::archive
