// ByteSource: random access to bytes, so that an index is built without reading the data in
// between.
//
// Code that indexes a shard of records reads only their headers, lengths and names through this
// interface: images are never read, and tests need no file.
//
// Threads: one at a time.
// Errors:  those of FileReader.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/file_reader.h"

namespace stoker::data::files {

class ByteSource {
 public:
  // size() of a stream whose end is not known yet. Larger than any file.
  static constexpr uint64_t kUnknownSize = uint64_t{1} << 62;

  virtual ~ByteSource() = default;

  virtual uint64_t size() const = 0;
  // The `count` bytes from `offset`, fewer only at the end; valid until the next call. Allocates
  // `count` bytes, so the caller must limit it.
  virtual Result<std::span<const std::byte>> peek(uint64_t offset, size_t count) = 0;
  // The same for at least `count` bytes, with those after them that are available without waiting.
  virtual Result<std::span<const std::byte>> peek_available(uint64_t offset, size_t count) = 0;
  // The bytes before `offset` are not needed any more. Spans remain valid until the next peek.
  virtual void discard_before(uint64_t /*offset*/) {}
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t size() const override { return bytes_.size(); }
  Result<std::span<const std::byte>> peek(uint64_t offset, size_t count) override {
    const std::span<const std::byte> rest = bytes_.subspan(std::min(offset, size()));
    return rest.first(std::min(count, rest.size()));
  }
  Result<std::span<const std::byte>> peek_available(uint64_t offset, size_t /*count*/) override {
    return bytes_.subspan(std::min(offset, size()));
  }

 private:
  const std::span<const std::byte> bytes_;
};

// A file, read through a window of one page.
class FileSource final : public ByteSource {
 public:
  FileSource(const FileReader& reader, size_t file, uint64_t size)
      : reader_(reader), file_(file), size_(size) {}

  uint64_t size() const override { return size_; }
  Result<std::span<const std::byte>> peek(uint64_t offset, size_t count) override;
  Result<std::span<const std::byte>> peek_available(uint64_t offset, size_t count) override;

 private:
  static constexpr size_t kWindow = 4096;
  static constexpr size_t kChunk = size_t{1} << 20;  // for sequential reading

  const FileReader& reader_;
  const size_t file_;
  const uint64_t size_;
  std::vector<std::byte> window_;
  uint64_t begin_ = 0;  // offset of window_
};

// A range of another source.
class PartSource final : public ByteSource {
 public:
  // begin + size <= whole.size().
  PartSource(ByteSource& whole, uint64_t begin, uint64_t size)
      : whole_(whole), begin_(begin), size_(size) {}

  uint64_t size() const override { return size_; }
  Result<std::span<const std::byte>> peek(uint64_t offset, size_t count) override {
    const uint64_t from = std::min(offset, size_);
    return whole_.peek(begin_ + from, std::min<uint64_t>(count, size_ - from));
  }
  Result<std::span<const std::byte>> peek_available(uint64_t offset, size_t count) override {
    return peek(offset, count);
  }

 private:
  ByteSource& whole_;
  const uint64_t begin_;
  const uint64_t size_;
};

}  // namespace stoker::data::files
