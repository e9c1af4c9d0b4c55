#include "tests/support/fake_device/device_allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

namespace stoker::fake_device {
namespace {

// Relaxed order is enough: tests read it when the others are idle.
std::atomic<int64_t> allocated{0};

thread_local std::optional<uint64_t> allocations_left;

constexpr size_t kAlignment = 64;  // the same as LibTorch's; room for the size in front of a block
constexpr int kPoison = 0xff;      // NaN in every floating-point format

void free_block(void* data) {
  if (data == nullptr) return;
  auto* const block = static_cast<std::byte*>(data) - kAlignment;
  size_t bytes = 0;
  std::memcpy(&bytes, block, sizeof bytes);
  std::memset(data, kPoison, bytes);
  allocated.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  std::free(block);
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, cpu};
    if (allocations_left && (*allocations_left)-- == 0) {
      allocations_left.reset();
      throw_out_of_memory();
    }
    void* block = nullptr;
    if (::posix_memalign(&block, kAlignment, bytes + kAlignment) != 0) throw std::bad_alloc();
    std::memcpy(block, &bytes, sizeof bytes);
    allocated.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    void* const data = static_cast<std::byte*>(block) + kAlignment;
    std::memset(data, kPoison, bytes);
    return {data, data, &free_block, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_device_allocator() {
  static DeviceAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/2);  // that of stokerd has a lower one
}

int64_t allocated_bytes() { return allocated.load(std::memory_order_relaxed); }

FailingAllocation::FailingAllocation(std::optional<uint64_t> after) { allocations_left = after; }

FailingAllocation::~FailingAllocation() { allocations_left.reset(); }

void throw_out_of_memory() {
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                              "CUDA out of memory. Tried to allocate 2.00 GiB");
}

}  // namespace stoker::fake_device
