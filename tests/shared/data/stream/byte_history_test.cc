#include "shared/data/stream/byte_history.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::data::stream {
namespace {

std::byte byte_at(uint64_t offset) { return static_cast<std::byte>(offset * 31 + offset / 256); }

std::vector<std::byte> bytes_of(uint64_t from, uint64_t to) {
  std::vector<std::byte> bytes;
  for (uint64_t i = from; i < to; ++i) bytes.push_back(byte_at(i));
  return bytes;
}

class ByteHistoryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kCapacity = 64;

  void expect_range(uint64_t begin, uint64_t complete, uint64_t end) const {
    const ByteHistory::Range range = history_.range();
    EXPECT_EQ(range.begin, begin);
    EXPECT_EQ(range.complete, complete);
    EXPECT_EQ(range.end, end);
  }
  void expect_bytes(uint64_t from, uint64_t to) const {
    std::vector<std::byte> bytes(to - from);
    EXPECT_TRUE(history_.copy(from, bytes)) << from << " to " << to;
    EXPECT_EQ(bytes, bytes_of(from, to)) << from << " to " << to;
  }

  std::vector<uint64_t> memory_ =
      std::vector<uint64_t>((ByteHistory::kHeaderBytes + kCapacity) / 8);
  const ByteHistory history_{std::as_writable_bytes(std::span(memory_))};
};

TEST_F(ByteHistoryTest, HoldsLastBytes) {
  EXPECT_EQ(history_.capacity(), kCapacity);
  expect_range(0, 0, 0);
  uint64_t end = 0;
  for (const uint64_t count : {5, 8, 0, 1, 50, 3, 64, 63, 200, 7}) {
    history_.append(bytes_of(end, end + count));
    end += count;
    const uint64_t begin = end - std::min(end, kCapacity);
    expect_range(begin, 0, end);
    for (uint64_t from = begin; from <= end; ++from) expect_bytes(from, end);
    expect_bytes(begin, end - (end - begin) / 2);
    std::vector<std::byte> more(end - begin + 1);
    EXPECT_FALSE(history_.copy(begin, more));
    if (begin > 0) {
      EXPECT_FALSE(history_.copy(begin - 1, std::span(more).first(1)));
    }
  }
}

TEST_F(ByteHistoryTest, RemembersLastWholeRecord) {
  history_.append(bytes_of(0, 30));
  history_.set_complete(25);
  history_.set_complete(10);  // read again
  expect_range(0, 25, 30);
  history_.append(bytes_of(30, 100));
  expect_range(36, 25, 100);  // only a part of the record is there
}

TEST_F(ByteHistoryTest, AssignReplacesAll) {
  history_.append(bytes_of(0, 30));
  history_.assign(1003, bytes_of(1003, 1020), 1015);
  expect_range(1003, 1015, 1020);
  expect_bytes(1003, 1020);
  history_.assign(7, bytes_of(7, 207), 207);
  expect_range(143, 207, 207);
  expect_bytes(143, 207);
  history_.assign(7, bytes_of(7, 207), 90);
  expect_range(143, 90, 207);
  history_.assign(0, {}, 0);
  expect_range(0, 0, 0);
}

TEST_F(ByteHistoryTest, RemembersThatBytesAreRead) {
  EXPECT_FALSE(history_.is_reading());
  history_.set_reading(true);
  EXPECT_TRUE(history_.is_reading());
  history_.append(bytes_of(0, 30));
  EXPECT_TRUE(history_.is_reading());
  history_.assign(0, {}, 0);
  EXPECT_FALSE(history_.is_reading());
}

TEST_F(ByteHistoryTest, IsEmptyIfItsWordsContradict) {
  for (const uint64_t begin : {uint64_t{31}, ~uint64_t{0}}) {
    history_.assign(0, bytes_of(0, 30), 30);
    memory_[0] = begin;
    expect_range(0, 0, 0);
  }
  memory_[0] = memory_[2] = uint64_t{1} << 63;  // no checkpoint has this offset
  expect_range(0, 0, 0);
  history_.assign(0, bytes_of(0, 30), 30);
  memory_[2] = 1000;
  expect_range(0, 0, 0);
  history_.assign(10, bytes_of(10, 30), 30);
  memory_[1] = 50;
  expect_range(10, 30, 30);
}

TEST_F(ByteHistoryTest, CopiesWhileBytesAreAppended) {
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    std::mt19937 random(5);
    uint64_t end = 0;
    while (end < 200'000) {
      const uint64_t count = random() % 40;
      history_.append(bytes_of(end, end + count));
      end += count;
    }
    ended = true;
  });
  size_t num_copies = 0;  // while it was written to; one after it always succeeds
  do {
    const ByteHistory::Range range = history_.range();
    std::vector<std::byte> bytes((range.end - range.begin) / 2);
    const uint64_t from = range.end - bytes.size();
    if (!history_.copy(from, bytes)) continue;
    EXPECT_EQ(bytes, bytes_of(from, range.end));
    ++num_copies;
  } while (!ended || num_copies == 0);
  writer.join();
  expect_bytes(history_.range().begin, history_.range().end);
}

}  // namespace
}  // namespace stoker::data::stream
