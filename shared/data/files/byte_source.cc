#include "shared/data/files/byte_source.h"

namespace stoker::data::files {

Result<std::span<const std::byte>> FileSource::peek(uint64_t offset, size_t count) {
  const uint64_t from = std::min(offset, size_);
  const size_t wanted = std::min<uint64_t>(count, size_ - from);
  const bool is_there = from >= begin_ && from + wanted <= begin_ + window_.size();
  if (!is_there) {
    window_.resize(std::min<uint64_t>(std::max(wanted, kWindow), size_ - from));
    begin_ = from;
    const Status read = reader_.read(file_, from, window_);
    if (!read.ok()) {
      window_.clear();
      return read;
    }
  }
  return std::span<const std::byte>(window_).subspan(from - begin_, wanted);
}

// Twice the required bytes, so that a caller whose record does not fit reads it few times.
Result<std::span<const std::byte>> FileSource::peek_available(uint64_t offset, size_t count) {
  return peek(offset, std::max(2 * count, kChunk));
}

}  // namespace stoker::data::files
