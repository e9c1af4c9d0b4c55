#include "shared/feed/batch_receiver.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

namespace stoker::feed {
namespace {

constexpr uint64_t kRows = 2;
constexpr uint64_t kSlots = 3;

class BatchReceiverTest : public ::testing::Test {
 protected:
  ReceivedBatch receive(uint64_t ticket) {
    return receiver_.receive({.ticket = ticket, .slot = slot_});
  }
  void fill(std::byte value) { std::ranges::fill(slot_, value); }
  static bool all_are(std::span<const std::byte> bytes, std::byte value) {
    return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == value; });
  }

  const ring::BatchLayout layout_{{{"input", DType::kU8, {3, 4, 4}},
                                   {"tokens", DType::kU8, {7}},
                                   {"length", DType::kI64, {}},
                                   {"target", DType::kF32, {2}},
                                   {"labels", DType::kI64, {5}}},
                                  kRows};
  std::vector<std::byte> slot_ = std::vector<std::byte>(layout_.slot_bytes());
  BatchReceiver receiver_{layout_, layout_, kSlots};
};

TEST_F(BatchReceiverTest, CopiesIntegersAndLeavesImagesAndNumbersInSlot) {
  fill(std::byte{1});
  const ReceivedBatch batch = receive(0);
  fill(std::byte{2});
  const std::vector<bool> is_copied{false, true, true, false, true};
  for (size_t i = 0; i < is_copied.size(); ++i) {
    EXPECT_EQ(BatchReceiver::is_copied(layout_.sample()[i]), is_copied[i]) << i;
    EXPECT_EQ(batch.tensors[i].size(), layout_.tensor_bytes(slot_, i).size());
    EXPECT_TRUE(all_are(batch.tensors[i], is_copied[i] ? std::byte{1} : std::byte{2})) << i;
  }
}

TEST_F(BatchReceiverTest, CopiesEveryTypeThatCanBeAnIndex) {
  for (const DType dtype :
       {DType::kU8, DType::kU16, DType::kI32, DType::kI64, DType::kBool, DType::kI8, DType::kI16})
    EXPECT_TRUE(BatchReceiver::is_copied({"tokens", dtype, {2}}));
  for (const DType dtype : {DType::kU16, DType::kI32, DType::kI64, DType::kI8, DType::kI16})
    EXPECT_TRUE(BatchReceiver::is_copied({"input", dtype, {2}}));
}

TEST_F(BatchReceiverTest, KeepsCopiesOfAllSlotsOfRing) {
  std::vector<ReceivedBatch> batches;
  for (uint64_t ticket = 0; ticket < kSlots; ++ticket) {
    fill(static_cast<std::byte>(ticket + 10));
    batches.push_back(receive(ticket));
  }
  for (uint64_t ticket = 0; ticket < kSlots; ++ticket)
    for (const size_t i : {1, 2, 4})
      EXPECT_TRUE(all_are(batches[ticket].tensors[i], static_cast<std::byte>(ticket + 10)));
}

TEST_F(BatchReceiverTest, PlacesCopiesInMemoryToBePinnedAtDistancesOfLayout) {
  const ReceivedBatch batch = receive(2);
  const std::byte* const begin = receiver_.memory().data();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 4096, 0u);
  for (const size_t i : {1, 2, 4}) {
    EXPECT_GE(batch.tensors[i].data(), begin);
    EXPECT_LE(batch.tensors[i].data() + batch.tensors[i].size(), begin + receiver_.memory().size());
  }
  EXPECT_EQ(static_cast<size_t>(batch.tensors[2].data() - batch.tensors[1].data()),
            layout_.offset(2) - layout_.offset(1));
}

TEST_F(BatchReceiverTest, NeedsNoMemoryWithoutIntegers) {
  const ring::BatchLayout numbers({{"input", DType::kF32, {4}}, {"target", DType::kF32, {1}}}, 2);
  EXPECT_TRUE(BatchReceiver(numbers, numbers, 8).memory().empty());
}

}  // namespace
}  // namespace stoker::feed
