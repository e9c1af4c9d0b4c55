// Zip archives: which members one has and where their bytes lie, and writing one. Enough of zip to read
// what numpy (npz) and PyTorch (torch.save) write, ZIP64 among it.
//
// Threads: values; one object per thread.
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
// Errors:  kCorrupt (no archive, damaged, in several parts, encrypted), those of ArchiveFile::read;
//          each names the file. Every length is compared with the file's before anything is
//          allocated.

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

// ZipWriter: writes an archive of stored (not packed) members from front to back, each in pieces, so
// that no member has to be in memory.
//
// Errors:  those of the sink; after one the archive is not to be used.
// Format:  as PyTorch writes its archives: the checksum follows the bytes, which begin at a multiple
//          of what the caller asks for (an extra field "FB" fills up to there). ZIP64 where a length,
//          an offset or the number of members needs it.
class ZipWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // Begins a member of so many bytes; the one before is complete. `alignment` is at most 1024.
  Status begin(const std::string& name, uint64_t bytes, uint64_t alignment = 1);
  Status append(std::span<const std::byte> bytes);
  // A small member in one go.
  Status add(const std::string& name, const std::string& content);
  // Ends the last member and writes the directory.
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
  uint64_t offset_ = 0;   // written so far
  bool is_open_ = false;  // the last member is not ended yet
};

}  // namespace stoker::archive
