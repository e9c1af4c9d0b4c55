// Inflater: decompresses a deflate stream, sequentially.
//
// Threads:  one object per thread; the reader must outlive it.
// Blocking: as its input.
// Errors:   kCorrupt (invalid data, truncated, checksum mismatch, trailing bytes), those of the
//           input; each names the file and the offset in it. kOutOfMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/scan.h"

namespace stoker::data::files {

// Location and format of compressed bytes.
struct Packed {
  enum class Format { kGzip, kDeflate };
  Format format = Format::kGzip;  // gzip: complete files, including files of several members
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Reads the next compressed bytes, at least one; 0 at their end.
using PackedInput = std::function<Result<size_t>(std::span<std::byte> bytes)>;

class Inflater {
 public:
  static constexpr size_t kMemory = size_t{300} << 10;  // bytes, about; independent of the stream

  static Result<Inflater> open(const FileReader& reader, const FileTable& files,
                               const Packed& packed);
  // `name`: of the file, for messages. `offset`: of the first byte of the input in it.
  static Result<Inflater> open(PackedInput input, Packed::Format format, std::string name,
                               uint64_t offset = 0);
  ~Inflater();
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) = delete;

  // Fills `out` from its start. Returns fewer bytes only at the end of the stream, after its
  // checksum was verified (gzip).
  Result<size_t> read(std::span<std::byte> out);
  // Returns at least one byte, except at the end; the bytes before an error before the error.
  Result<size_t> read_available(std::span<std::byte> out);

 private:
  struct State;
  explicit Inflater(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// decompress_file: writes decompressed bytes to a file next to the index. Needed because a sample
// in the middle of a deflate stream cannot be read without decompressing everything before it.
//
// Blocking: decompresses and writes everything, then waits for the disk.
// Errors:   kCorrupt (the compressed bytes are invalid or their decompressed size differs, or is
//           more than kMaxExpansion times theirs), kNoSpace (found before anything is written),
//           kIoError, kPermission. On an error no file is created or changed.
// Crash:    leaves a file with a temporary name, which the next remove_temporary_files() deletes.
inline constexpr uint64_t kMaxExpansion = 100;  // real data rarely shrinks to a tenth
// What the files of a dataset may have in total, whatever their expansion.
inline constexpr uint64_t kFreeExpansionBytes = uint64_t{64} << 20;

struct DecompressOptions {
  Packed from;
  uint64_t bytes = 0;  // expected decompressed size
  // Of the decompressed bytes, if the container stores it; gzip checks its own.
  std::optional<uint32_t> crc32 = {};
};

// Appends the created file to `made`, whose root is empty.
Status decompress_file(const FileReader& reader, const FileTable& files,
                       const DecompressOptions& options, const std::string& path,
                       const ScanProgress& progress, FileTable& made);

}  // namespace stoker::data::files
