#include "daemon/train/pinned_memory.h"

#include <map>

#include <gtest/gtest.h>

namespace stoker::train {
namespace {

constexpr size_t kPage = 4096;

class PinnedMemoryTest : public ::testing::Test {
 protected:
  PinnedMemory::Driver driver() {
    return {.pin =
                [this](void* bytes, size_t size) {
                  if (pinned_.size() >= most_chunks_) return false;
                  pinned_[static_cast<std::byte*>(bytes) - memory_.data()] = size;
                  return true;
                },
            .unpin =
                [this](void* bytes) {
                  EXPECT_EQ(pinned_.erase(static_cast<std::byte*>(bytes) - memory_.data()), 1u);
                }};
  }

  size_t pinned_bytes() const {
    size_t bytes = 0;
    for (const auto& [offset, size] : pinned_) bytes += size;
    return bytes;
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(24 * kPage);
  std::map<ptrdiff_t, size_t> pinned_;  // size by offset
  size_t most_chunks_ = 100;
};

TEST_F(PinnedMemoryTest, AlignsChunksToSlotAndPageBoundaries) {
  {
    const PinnedMemory pinned(driver(), memory_, kPage * 3 / 2, 5 * kPage);  // 16 slots
    EXPECT_EQ(pinned_bytes(), memory_.size());
    EXPECT_EQ(pinned_.size(), 8u);
    for (const auto& [offset, size] : pinned_) {
      EXPECT_EQ(offset % static_cast<ptrdiff_t>(3 * kPage), 0);
      EXPECT_EQ(size, 3 * kPage);
    }
  }
  EXPECT_TRUE(pinned_.empty()) << "what was locked is unlocked";
}

TEST_F(PinnedMemoryTest, PinsOneChunkWhenSlotsAreNotPageAligned) {
  const PinnedMemory pinned(driver(), memory_, 4097 * 3, 2 * kPage);
  EXPECT_EQ(pinned_.size(), 1u);
  EXPECT_EQ(pinned_bytes(), memory_.size());
}

TEST_F(PinnedMemoryTest, LeavesMemoryUnpinnedWhenDriverRejects) {
  most_chunks_ = 2;
  {
    const PinnedMemory pinned(driver(), memory_, kPage, 5 * kPage);
    EXPECT_EQ(pinned_bytes(), 10 * kPage);
    most_chunks_ = 0;
    const PinnedMemory none(driver(), memory_, kPage);
    EXPECT_EQ(pinned_bytes(), 10 * kPage);
  }
  EXPECT_TRUE(pinned_.empty());
}

}  // namespace
}  // namespace stoker::train
