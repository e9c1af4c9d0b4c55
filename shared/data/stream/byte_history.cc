#include "shared/data/stream/byte_history.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstring>

namespace stoker::data::stream {
namespace {

enum Word : size_t { kBegin, kComplete, kEnd, kReading, kWords };
static_assert(kWords * sizeof(uint64_t) == ByteHistory::kHeaderBytes);
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kWordBytes = sizeof(uint64_t);

std::span<uint64_t> as_words(std::span<std::byte> bytes) {
  assert(bytes.size() % kWordBytes == 0);
  return {reinterpret_cast<uint64_t*>(bytes.data()), bytes.size() / kWordBytes};
}

// Atomic, because other processes read words while they are written. Who sees a word sees those that
// were stored before: `begin` above the bytes that it replaces, and `end` only with its bytes.
uint64_t load(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }
void store_word(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

ByteHistory::ByteHistory(std::span<std::byte> memory)
    : header_(as_words(memory.first(kHeaderBytes))),
      words_(as_words(memory.subspan(kHeaderBytes))) {
  assert(!words_.empty());
}

ByteHistory::Range ByteHistory::range() const {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Range range{.begin = load(header_[kBegin])};
    range.end = load(header_[kEnd]);
    range.complete = load(header_[kComplete]);
    if (load(header_[kBegin]) != range.begin) continue;
    if (range.begin > range.end || range.end - range.begin > capacity() ||
        range.end > ByteHistory::kMaxOffset)
      return {};
    range.complete = std::min(range.complete, range.end);
    return range;
  }
  return {};
}

bool ByteHistory::copy(uint64_t offset, std::span<std::byte> out) const {
  const uint64_t end = range().end;
  if (offset > end || out.size() > end - offset) return false;
  const uint64_t first = offset;
  while (!out.empty()) {
    const uint64_t at = offset % capacity();
    const uint64_t skipped = at % kWordBytes;
    const size_t count = std::min<uint64_t>(out.size(), kWordBytes - skipped);
    const uint64_t word = load(words_[at / kWordBytes]);
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&word) + skipped, count);
    offset += count;
    out = out.subspan(count);
  }
  // Whether append() has replaced some of them, also meanwhile.
  return load(header_[kBegin]) <= first;
}

void ByteHistory::append(std::span<const std::byte> bytes) const {
  const uint64_t end = load(header_[kEnd]);
  const uint64_t new_end = end + bytes.size();
  const uint64_t begin = load(header_[kBegin]);
  // Before the bytes are replaced.
  if (new_end - begin > capacity()) store_word(header_[kBegin], new_end - capacity());
  store(end, bytes);
  store_word(header_[kEnd], new_end);
}

void ByteHistory::set_complete(uint64_t offset) const {
  if (offset > load(header_[kComplete])) store_word(header_[kComplete], offset);
}

void ByteHistory::discard_before(uint64_t offset) const { store_word(header_[kBegin], offset); }

void ByteHistory::assign(uint64_t begin, std::span<const std::byte> bytes,
                         uint64_t complete) const {
  const uint64_t end = begin + bytes.size();
  store_word(header_[kBegin], end - std::min<uint64_t>(bytes.size(), capacity()));
  store(begin, bytes);
  store_word(header_[kComplete], complete);
  store_word(header_[kEnd], end);
  set_reading(false);
}

void ByteHistory::set_reading(bool is_reading) const {
  store_word(header_[kReading], is_reading ? 1 : 0);
}

bool ByteHistory::is_reading() const { return load(header_[kReading]) != 0; }

void ByteHistory::store(uint64_t offset, std::span<const std::byte> bytes) const {
  if (bytes.size() > capacity()) {
    offset += bytes.size() - capacity();
    bytes = bytes.last(capacity());
  }
  while (!bytes.empty()) {
    const uint64_t at = offset % capacity();
    const uint64_t skipped = at % kWordBytes;
    const size_t count = std::min<uint64_t>(bytes.size(), kWordBytes - skipped);
    uint64_t word = count < kWordBytes ? load(words_[at / kWordBytes]) : 0;
    std::memcpy(reinterpret_cast<std::byte*>(&word) + skipped, bytes.data(), count);
    store_word(words_[at / kWordBytes], word);
    offset += count;
    bytes = bytes.subspan(count);
  }
}

}  // namespace stoker::data::stream
