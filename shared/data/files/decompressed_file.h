// Inflater: the bytes that a deflate stream in a file stands for, from front to back.
//
// Threads:  one object per thread; the reader must outlive it.
// Blocking: as the disk does.
// Errors:   kCorrupt (damaged, cut off, a wrong checksum, bytes after the end), those of FileReader;
//           each names the file and the offset in it. kOutOfMemory. Memory is some 300 KiB, whatever
//           the stream holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/scan.h"

namespace stoker::data::files {

// Where packed bytes lie, and how they are packed.
struct Packed {
  enum class Format { kGzip, kDeflate };
  Format format = Format::kGzip;  // gzip: whole files, several members after another among them
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class Inflater {
 public:
  static Result<Inflater> open(const FileReader& reader, const FileTable& files,
                               const Packed& packed);
  ~Inflater();
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) = delete;

  // Fills `out` from its front; fewer bytes only at the end of the stream, whose checksum has then
  // been found right (gzip).
  Result<size_t> read(std::span<std::byte> out);

 private:
  struct State;
  explicit Inflater(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// unpacked file: what packed bytes stand for, written to a file beside the index, because a sample in
// the middle of a deflate stream cannot be read without all before it.
//
// Blocking: unpacks and writes everything, and waits for the disk.
// Errors:   kCorrupt (the packed bytes, or their number, are not as promised), kNoSpace, kIoError,
//           kPermission; no file of that name has then been made or changed.
// Crash:    a file of another name is left, which the next run of remove_temporary_files() takes away.
struct DecompressOptions {
  Packed from;
  uint64_t bytes = 0;                  // exactly so many must come out
  std::optional<uint32_t> crc32 = {};  // of them, where the container says it (gzip checks its own)
};

// Appends the file that was made to `made`, whose root is empty.
Status decompress_file(const FileReader& reader, const FileTable& files,
                       const DecompressOptions& options, const std::string& path,
                       const ScanProgress& progress, FileTable& made);

}  // namespace stoker::data::files
