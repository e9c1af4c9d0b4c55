// ZstdReader: decompresses a zstd stream, sequentially.
//
// Format:   frames of RFC 8878, one after another, as `zstd` and `cat` of its files write them.
// Threads:  one at a time.
// Blocking: as its input.
// Errors:   kCorrupt (invalid data, truncated, checksum mismatch), those of the input; each names
//           the file and the offset in it. kOutOfMemory. A frame with a window of more than 32 MiB
//           (zstd --long, --ultra -21 and higher) is kCorrupt, so that many streams fit in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/decompressed_file.h"

namespace stoker::data::files {

class ZstdReader {
 public:
  // `name`: of the file, for messages.
  static Result<ZstdReader> open(PackedInput input, std::string name);
  ~ZstdReader();
  ZstdReader(ZstdReader&&) noexcept;
  ZstdReader& operator=(ZstdReader&&) = delete;

  // Returns at least one byte, except at the end; the bytes before an error before the error.
  Result<size_t> read_available(std::span<std::byte> out);
  size_t held_bytes() const;  // memory: the window and the buffers

 private:
  struct State;
  explicit ZstdReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stoker::data::files
