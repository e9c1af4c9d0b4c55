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
#include <span>

#include "shared/base/status.h"
#include "shared/dataset/file_reader.h"

namespace stoker::dataset {

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

}  // namespace stoker::dataset
