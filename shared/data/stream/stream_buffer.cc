#include "shared/data/stream/stream_buffer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace stoker::data::stream {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
// Memory that is kept after a long record.
constexpr size_t kKeptBytes = size_t{4} << 20;

}  // namespace

void StreamBuffer::discard_before(uint64_t offset) {
  if (offset <= begin_) return;
  const uint64_t known = std::min<uint64_t>(offset - begin_, count_);
  first_ += known;
  count_ -= known;
  if (!has_ended_) {
    unread_ += offset - begin_ - known;
    begin_ = offset;
  } else {
    begin_ += known;
  }
}

Status StreamBuffer::skip_to(uint64_t offset) {
  discard_before(offset);
  STOKER_RETURN_IF_ERROR(fill(0));
  if (begin_ >= offset) return {};
  return Status(StatusCode::kCorrupt, name() + ": ends " + std::to_string(offset - begin_) +
                                          " bytes before the position to continue from");
}

Result<std::span<const std::byte>> StreamBuffer::peek(uint64_t offset, size_t count) {
  assert(offset >= begin_ && "the bytes were discarded");
  const uint64_t skipped = offset - begin_;
  STOKER_RETURN_IF_ERROR(fill(skipped + count));
  if (skipped >= count_) return std::span<const std::byte>();
  return std::span<const std::byte>(bytes_).subspan(first_ + skipped,
                                                    std::min<uint64_t>(count, count_ - skipped));
}

Result<std::span<const std::byte>> StreamBuffer::peek_available(uint64_t offset, size_t count) {
  discard_before(offset);
  if (offset > end() && has_ended_) return std::span<const std::byte>();
  STOKER_RETURN_IF_ERROR(fill(count));
  return std::span<const std::byte>(bytes_).subspan(first_, count_);
}

// Reads until the window has `count` bytes or the input ends.
Status StreamBuffer::fill(uint64_t count) {
  if (failure_.ok()) failure_ = fill_window(count);
  return failure_;
}

Status StreamBuffer::fill_window(uint64_t count) {
  if (unread_ > 0) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t skipped, input_->skip(unread_, stop_));
    has_ended_ = skipped < unread_;
    begin_ -= unread_ - skipped;
    unread_ = 0;
  }
  while (count_ < count && !has_ended_) {
    make_space(count);
    const auto space = std::span(bytes_).subspan(first_ + count_);
    STOKER_ASSIGN_OR_RETURN(const size_t got, input_->read(space, stop_));
    has_ended_ = got == 0;
    count_ += got;
  }
  return {};
}

// Space for the next read. The window at most doubles, so that a wrong length of a record does not
// allocate memory for bytes that never arrive.
void StreamBuffer::make_space(uint64_t wanted) {
  const size_t capacity =
      count_ + std::clamp<uint64_t>(wanted - count_, kReadBytes, std::max(count_, kReadBytes));
  if (bytes_.size() - first_ >= capacity) return;
  if (bytes_.size() > kKeptBytes && capacity <= kKeptBytes) {
    std::vector<std::byte> smaller(kKeptBytes);
    std::memcpy(smaller.data(), bytes_.data() + first_, count_);
    bytes_ = std::move(smaller);
  } else {
    if (count_ > 0) std::memmove(bytes_.data(), bytes_.data() + first_, count_);
    if (bytes_.size() < capacity) bytes_.resize(capacity);
  }
  window_bytes_.store(bytes_.capacity(), std::memory_order_relaxed);
  first_ = 0;
}

}  // namespace stoker::data::stream
