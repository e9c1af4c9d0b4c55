// Framer: finds the records of a file or stream, one after another. Indexing and streams use the same.
//
// A record is one contiguous range of bytes, its frame: a line, a block of tokens, a TFRecord, or the
// members of a sample in a tar file.
//
// Threads:   one at a time.
// Blocking:  as the source.
// Ownership: the source must outlive this object.
// Errors:    kCorrupt at offset(), or at the offset of the frame whose content is wrong; the caller adds
//            the location: a record that the data ends in, or that has more than max_bytes, bytes between
//            records that belong to none, a wrong checksum, a packed file. Those of the source. next()
//            must not be called after an error, unless can_continue().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"

namespace stoker::data::format {

class Framer;

inline Status corrupt_record(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

struct Frame {
  uint64_t offset = 0;  // of its first byte
  uint64_t bytes = 0;
  uint64_t line = 0;  // 1-based, from where reading began; 0: the records are no lines
};

// How bytes are divided into records.
struct Framing {
  std::unique_ptr<Framer> (*make_framer)(files::ByteSource& source, const Framing& framing,
                                         uint64_t begin) = nullptr;
  // What the fields are read from. `bytes` starts with a frame and can be longer. Null: the frame.
  Result<std::span<const std::byte>> (*unwrap)(std::span<const std::byte> bytes) = nullptr;
  uint64_t wrapper_bytes = 0;  // that unwrap() removes
  uint64_t max_bytes = 0;      // of the content
  bool has_lines = false;      // of text
  // Blocks of a constant size; consecutive ones share the last token. What is left at the end and does
  // not fill a block is dropped.
  uint64_t block_bytes = 0;
  uint64_t token_bytes = 1;
  // A record ends with its line end, a sample of a tar stream with the header or zero block behind it;
  // the end of the stream is the end of none, and neither is a token. For a stream that can break off
  // anywhere.
  bool needs_ends = false;

  Result<std::span<const std::byte>> content(std::span<const std::byte> bytes) const {
    return unwrap == nullptr ? bytes : unwrap(bytes);
  }
};

class Framer {
 public:
  // `begin`: the offset of the first record; not 0 if reading continues in the middle.
  Framer(files::ByteSource& source, const Framing& framing, uint64_t begin)
      : source_(source), framing_(framing), at_(begin) {}
  virtual ~Framer() = default;
  Framer(const Framer&) = delete;
  Framer& operator=(const Framer&) = delete;

  // The next record; false at the end. Reads little more than it takes to find its end.
  Result<bool> next(Frame& frame) {
    can_continue_ = is_incomplete_ = false;
    return find_next(frame);
  }
  // Reads the content of the record that next() found. Valid until the next call.
  virtual Result<std::span<const std::byte>> content(const Frame& frame);
  // Continues at a record that starts at `offset` or after it; not 0.
  virtual void seek(uint64_t offset) { at_ = offset; }

  // Where reading continues: after the last record, also after one whose content is wrong. After another
  // error, the start of the record with the error.
  uint64_t offset() const { return at_; }
  // After an error: only this record is lost.
  bool can_continue() const { return can_continue_; }
  // After an error: the data ends in the record, which starts at offset().
  bool is_incomplete() const { return is_incomplete_; }
  // At the end: the bytes that did not fill a block.
  uint64_t dropped_bytes() const { return dropped_bytes_; }
  files::ByteSource& source() const { return source_; }

 protected:
  virtual Result<bool> find_next(Frame& frame) = 0;
  Status cut_off();
  Status too_large(uint64_t bytes) const;

  files::ByteSource& source_;
  const Framing framing_;
  uint64_t at_;
  bool can_continue_ = false;
  bool is_incomplete_ = false;
  uint64_t dropped_bytes_ = 0;
};

template <typename OneFramer>
std::unique_ptr<Framer> make_framer(files::ByteSource& source, const Framing& framing,
                                    uint64_t begin) {
  return std::make_unique<OneFramer>(source, framing, begin);
}

// Lines of text; blank ones are skipped.
Framing line_framing();
// Of text and tokens.
Framing block_framing(uint64_t block_bytes, uint64_t token_bytes);
// Samples of a tar file (WebDataset), or of several joined by cat.
Framing tar_framing();

// ---- TFRecord: u64 length, u32 masked CRC-32C of the length, the data, u32 masked CRC-32C of the data;
// little-endian.
Framing tfrecord_framing();

constexpr uint64_t kFrameHead = 12;  // bytes before the data
constexpr uint64_t kFrameTail = 4;   // bytes after the data

// The data of a frame, after verifying its checksums. `bytes` starts with the frame and can be
// longer.
Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes);

}  // namespace stoker::data::format
