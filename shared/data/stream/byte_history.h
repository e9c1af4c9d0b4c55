// ByteHistory: the last bytes of an input that cannot be read again, by offset, in memory that
// processes share. A worker process that is restarted, and a run that is resumed from a checkpoint,
// read from it what was read before and not used.
//
// Threads:   append(), set_complete() and discard_before() in one thread; range() and copy() in any,
//            meanwhile too. assign() while no other thread uses the memory.
// Blocking:  never.
// Ownership: a view; the memory must outlive it.
// Trust:     the other process can write to the memory at any time. range() is consistent in itself;
//            the bytes can be any.
// Format:    words: begin, complete, end, whether bytes are being read, then the byte of offset o at o modulo the capacity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stoker::data::stream {

class ByteHistory {
 public:
  // Offsets in the input.
  struct Range {
    uint64_t begin = 0;  // of the first byte in memory
    // After the last record that was read completely; at most end. Below begin: no record ends in memory.
    uint64_t complete = 0;
    uint64_t end = 0;  // after the last byte
  };

  // A multiple of 8 bytes, aligned to 8, zeroed; more than the words.
  explicit ByteHistory(std::span<std::byte> memory);
  static constexpr uint64_t kMaxOffset = uint64_t{1} << 62;  // of all inputs
  static constexpr size_t kHeaderBytes = 32;

  uint64_t capacity() const { return words_.size() * sizeof(uint64_t); }
  // Empty if the words contradict each other.
  Range range() const;
  // Copies the bytes from `offset` on; false if they are not, or not any more, all there. Those from
  // range().begin on, asked afterwards, were copied if the last one was there.
  bool copy(uint64_t offset, std::span<std::byte> out) const;

  // The bytes behind `end`. Those above the capacity replace the oldest.
  void append(std::span<const std::byte> bytes) const;
  void set_complete(uint64_t offset) const;  // only increases
  // From before bytes are read of the input until they are appended. If the reader is killed
  // meanwhile, they are lost.
  void set_reading(bool is_reading) const;
  bool is_reading() const;
  // Removes the bytes before `offset`, which is in the range.
  void discard_before(uint64_t offset) const;
  // Only these bytes, or the last of them; they are not being read.
  void assign(uint64_t begin, std::span<const std::byte> bytes, uint64_t complete) const;

 private:
  void store(uint64_t offset, std::span<const std::byte> bytes) const;

  std::span<uint64_t> header_;
  std::span<uint64_t> words_;
};

}  // namespace stoker::data::stream
