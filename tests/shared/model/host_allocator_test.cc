#include "shared/model/host_allocator.h"

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace stoker::model {
namespace {

class HostAllocatorTest : public testing::Test {
 protected:
  void SetUp() override { install_host_allocator(); }
  // It does not report what it allocates, as PeakMemory needs it.
  void TearDown() override { c10::SetCPUAllocator(c10::GetDefaultCPUAllocator()); }
};

TEST_F(HostAllocatorTest, AlignsTensorsOfAnySize) {
  std::vector<at::Tensor> tensors;
  for (int64_t bytes = 0; bytes < 3000; ++bytes) {
    tensors.push_back(at::empty({bytes}, at::kByte));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(tensors.back().data_ptr()) % 64, 0u) << bytes;
    if (bytes > 0) tensors.back().fill_(static_cast<int>(bytes % 251));
  }
  for (int64_t bytes = 1; bytes < 3000; ++bytes)
    ASSERT_EQ(tensors[static_cast<size_t>(bytes)][bytes - 1].item<int>(), bytes % 251);
}

TEST_F(HostAllocatorTest, ThrowsLibTorchErrorWhenOutOfMemory) {
  EXPECT_THROW(at::empty({int64_t{1} << 60}, at::kByte), c10::Error);
  EXPECT_EQ(at::zeros({4}).sum().item<float>(), 0.0f);
}

#ifdef __GLIBC__
// With posix_memalign() each round would permanently lose the block of a tensor: 150 MB in total.
TEST_F(HostAllocatorTest, DoesNotFragmentTensorMemoryWithSmallAllocations) {
  constexpr int64_t kBytes = 768 << 10;
  const auto round = [](std::vector<std::unique_ptr<void, void (*)(void*)>>& small, size_t bytes) {
    const at::Tensor first = at::empty({kBytes}, at::kByte),
                     second = at::empty({kBytes}, at::kByte);
    for (int i = 0; i < 8; ++i) small.emplace_back(std::malloc(bytes + 16 * (i % 4)), &std::free);
  };
  std::vector<std::unique_ptr<void, void (*)(void*)>> small;
  for (int i = 0; i < 20; ++i) round(small, 24);
  const struct mallinfo2 before = ::mallinfo2();
  for (int i = 0; i < 200; ++i) round(small, 24);
  const struct mallinfo2 after = ::mallinfo2();
  // Heap size without the unused block at its end.
  const auto used = [](const struct mallinfo2& info) { return info.arena - info.keepcost; };
  EXPECT_LT(used(after), used(before) + (8 << 20));
}
#endif

}  // namespace
}  // namespace stoker::model
