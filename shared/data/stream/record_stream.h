// RecordStream: the records of a stream, one after another, without an index.
//
// A record is one contiguous range of its stream: a line, a block of tokens, a TFRecord, or the
// members of a sample in a tar file. Its bytes alone are sufficient to decode it, so that it can be
// saved by value, or by its offset in a stream that can be read again.
//
// Threads:  one at a time, except held_bytes() and those of input(), which any thread may call.
// Blocking: next() and skip_to() as ByteInput::read(). A record is complete when its last byte was
//           read; a sample of a tar stream when the header of the next one or the zero block that ends
//           its archive was, or the stream has ended.
// Errors:   those of format::Framer, with name, record and offset; those of ByteInput, with its name. If
//           can_continue(), only this record is lost, otherwise next() must not be called again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/format/framing.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/stream_buffer.h"

namespace stoker::data::stream {

constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;

using format::Framing;
// kInvalidArgument: the format cannot be read without an index; those of block_size_of().
Result<Framing> framing_of(const DatasetRequest& request);
// Whether the records of a stream are found again if bytes of it are missing.
bool finds_records(config::DatasetFormat format);

// Where reading continues: the number of bytes, after decompression, and of records before it.
struct StreamPosition {
  uint64_t offset = 0;
  uint64_t record = 0;
  bool operator==(const StreamPosition&) const = default;
};

struct StreamRecord {
  StreamPosition at;
  // The content of its frame: a line with its line end, if there is one; a block; the data of a TFRecord;
  // tar members with their headers, a small tar file. Valid until the next call.
  std::span<const std::byte> bytes;
};

class RecordStream {
 public:
  // `start`: the position of the next byte of the input, if its first bytes were read elsewhere.
  RecordStream(const Framing& framing, std::unique_ptr<ByteInput> input, StreamPosition start = {});
  ~RecordStream() = default;
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  // False at the end.
  Result<bool> next(StreamRecord& record, const std::stop_token& stop);
  // Continues at a saved position, of the start of a record or after one (StreamRecord::at,
  // position()). kInvalidArgument: it is before position(), which is then unchanged. kCorrupt: the
  // stream ends before it. ByteInput::check_identity() finds out whether the input is the same.
  Status skip_to(const StreamPosition& to, const std::stop_token& stop);
  // After the last record, also after one that is lost.
  StreamPosition position() const { return position_; }
  bool can_continue() const { return framer_->can_continue(); }
  // After an error: the stream ends in the record, which starts at position().
  bool is_incomplete() const { return framer_->is_incomplete(); }
  const ByteInput& input() const { return buffer_.input(); }
  // Memory for reading: the window of the stream and that of its decompression.
  size_t held_bytes() const { return buffer_.held_bytes(); }
  // At the end: the bytes that did not fill a block.
  uint64_t dropped_bytes() const { return framer_->dropped_bytes(); }

 private:
  Result<bool> find_next(StreamRecord& record);
  // Adds the location to an error of the record. Errors of the input have their own.
  Status wrong(uint64_t offset, const Status& status) const;

  StreamBuffer buffer_;
  const std::unique_ptr<format::Framer> framer_;
  StreamPosition position_;
};

}  // namespace stoker::data::stream
