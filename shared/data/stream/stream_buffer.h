// StreamBuffer: window of a ByteInput, so that parsers of files read a stream.
//
// Offsets are those of the stream, which are larger than those of the input if reading continues in
// the middle. The window grows with the bytes that are requested, so the caller must limit them.
//
// Threads:  one at a time, except held_bytes(), which any thread may call.
// Blocking: peek() and peek_available() as ByteInput::read(), until they have `count` bytes.
// Errors:   those of the input; after one, only the same error is returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/byte_source.h"
#include "shared/data/stream/byte_input.h"

namespace stoker::data::stream {

class StreamBuffer final : public files::ByteSource {
 public:
  // `offset`: of the next byte of the input.
  StreamBuffer(std::unique_ptr<ByteInput> input, uint64_t offset)
      : input_(std::move(input)), begin_(offset) {}

  const std::string& name() const { return input_->name(); }
  const ByteInput& input() const { return *input_; }
  bool has_failed() const { return !failure_.ok(); }
  // For the following calls.
  void set_stop(std::stop_token stop) { stop_ = std::move(stop); }

  // Memory of the window and of the input.
  size_t held_bytes() const {
    return window_bytes_.load(std::memory_order_relaxed) + input_->held_bytes();
  }

  // Discards the bytes before `offset`, and reads as far. kCorrupt if the input ends before it.
  Status skip_to(uint64_t offset);

  // ByteSource. Offsets must not be below a discarded one.
  uint64_t size() const override { return has_ended_ ? end() : kUnknownSize; }
  Result<std::span<const std::byte>> peek(uint64_t offset, size_t count) override;
  // Discards the bytes before `offset`.
  Result<std::span<const std::byte>> peek_available(uint64_t offset, size_t count) override;
  void discard_before(uint64_t offset) override;

 private:
  uint64_t end() const { return begin_ + count_; }
  Status fill(uint64_t count);
  Status fill_window(uint64_t count);
  void make_space(uint64_t wanted);

  const std::unique_ptr<ByteInput> input_;
  std::stop_token stop_;
  std::vector<std::byte> bytes_;         // the window is bytes_[first_, first_ + count_)
  std::atomic<size_t> window_bytes_{0};  // of bytes_; no other data depends on it
  size_t first_ = 0;
  size_t count_ = 0;
  uint64_t begin_;       // offset of the first byte of the window
  uint64_t unread_ = 0;  // discarded bytes that were not read yet; then count_ is 0
  bool has_ended_ = false;
  Status failure_;
};

}  // namespace stoker::data::stream
