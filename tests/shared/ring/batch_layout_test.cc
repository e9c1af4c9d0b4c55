#include "shared/ring/batch_layout.h"

#include <limits>

#include <gtest/gtest.h>

namespace stoker::ring {
namespace {

TEST(BatchLayoutTest, AlignsBatchMajorTensorsToCacheLines) {
  const BatchLayout layout({{.name = "input", .dtype = DType::kU8, .shape = {3, 5}},
                            {.name = "label", .dtype = DType::kI64, .shape = {}}},
                           7);
  EXPECT_EQ(layout.offset(0), 0u);
  EXPECT_EQ(layout.offset(1), 128u);  // 7 * 15 = 105 bytes, rounded up
  EXPECT_EQ(layout.slot_bytes(), 192u);
}

TEST(BatchLayoutTest, SharesBytesBetweenRowsAndTensor) {
  const BatchLayout layout({{.name = "a", .dtype = DType::kU16, .shape = {2}},
                            {.name = "b", .dtype = DType::kF32, .shape = {4}}},
                           3);
  std::vector<std::byte> slot(layout.slot_bytes());
  const std::span<std::byte> bytes(slot);
  EXPECT_EQ(layout.row(bytes, 1, 2).data(), slot.data() + 64 + 2 * 16);
  EXPECT_EQ(layout.row(bytes, 1, 2).size(), 16u);
  EXPECT_EQ(layout.tensor_bytes(bytes, 1).data(), slot.data() + 64);
  EXPECT_EQ(layout.tensor_bytes(bytes, 1).size(), 48u);
}

TEST(BatchLayoutTest, SaturatesOverflowingSizes) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const auto bytes_of = [](std::vector<int64_t> shape, uint64_t batch) {
    return BatchLayout({{.name = "x", .dtype = DType::kF32, .shape = std::move(shape)}}, batch)
        .slot_bytes();
  };
  EXPECT_EQ(bytes_of({kHuge}, 1), std::numeric_limits<size_t>::max());
  EXPECT_EQ(bytes_of({1 << 20, 1 << 20, 1 << 20, 1 << 20}, 1), std::numeric_limits<size_t>::max());
  EXPECT_EQ(bytes_of({16}, std::numeric_limits<uint64_t>::max()),
            std::numeric_limits<size_t>::max());
}

}  // namespace
}  // namespace stoker::ring
