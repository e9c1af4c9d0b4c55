// What the kernels are written with, so that the same source runs on a device and on the host.
//
// A kernel is a function template on a thread block. Its code between two calls of for_each_thread() or
// reduce() is the same for all threads of the block; what differs by thread is in the functions passed
// to these. On a device, every thread calls such a function once, with its index. On the host, a loop
// calls it for one thread after the other. So a function must not read what another thread writes in the
// same call, and local variables of a thread do not outlive it.
//
// reduce() combines the values in the same order on both: the results differ only by what a
// compiler contracts to fused multiply-adds, and by the last digits of expf() and the like.
#pragma once

#include <cmath>
#include <cstdint>

#include "shared/model/kernel_table.h"

#ifdef __CUDACC__
#define STOKER_KERNEL __device__ __forceinline__
#define STOKER_HOST_KERNEL __host__ __device__
#else
#define STOKER_KERNEL inline
#define STOKER_HOST_KERNEL
#endif

namespace stoker::cuda {

using model::Bf16;

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxBlockSize = 1024;

// ---- Numbers

// Rounds up.
STOKER_HOST_KERNEL constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

STOKER_KERNEL uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(uint32_t, value);
#endif
}

STOKER_KERNEL float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

STOKER_KERNEL float to_float(float value) { return value; }
STOKER_KERNEL float to_float(Bf16 value) {
  return float_of(static_cast<uint32_t>(value.bits) << 16);
}

STOKER_KERNEL void from_float(float& to, float value) { to = value; }

// Rounds to the nearest, ties to even, as c10::BFloat16. Without cuda_bf16.h, which the host's
// compiler lacks and which adds a third to the time that a kernel takes to compile.
STOKER_KERNEL void from_float(Bf16& to, float value) {
  const uint32_t bits = bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<uint16_t>(is_nan ? 0x7fc0u : rounded);
}

// ---- Vectors of 16 bytes, which a thread reads and writes in one access

template <typename T>
inline constexpr int kVectorSize = 16 / static_cast<int>(sizeof(T));

template <typename T>
struct alignas(16) Vector {
  T values[kVectorSize<T>];
};

template <typename T>
STOKER_KERNEL Vector<T> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}

template <typename T>
STOKER_KERNEL void store_vector(T* to, const Vector<T>& vector) {
  *reinterpret_cast<Vector<T>*>(to) = vector;
}

// ---- Values that reduce() combines. Sum and Max of one value, and the maximum with the sum of
// exp(value - maximum), which is what a softmax needs.

struct Sum {
  float value;
};
STOKER_KERNEL Sum combine(Sum a, Sum b) { return {a.value + b.value}; }

struct Sum2 {
  float first, second;
};
STOKER_KERNEL Sum2 combine(Sum2 a, Sum2 b) { return {a.first + b.first, a.second + b.second}; }

struct ExpSum {
  float max, sum;
};
// The factor of the larger maximum is 1 also if it is infinite.
STOKER_KERNEL float exp_factor(float max, float larger) {
  return max == larger ? 1.0f : expf(max - larger);
}
STOKER_KERNEL ExpSum combine(ExpSum a, ExpSum b) {
  const float max = a.max > b.max ? a.max : b.max;
  return {max, a.sum * exp_factor(a.max, max) + b.sum * exp_factor(b.max, max)};
}

// ---- Thread blocks

#ifdef __CUDACC__

__device__ __forceinline__ Sum shuffle(Sum value, int mask) {
  return {__shfl_xor_sync(0xffffffffu, value.value, mask)};
}
__device__ __forceinline__ Sum2 shuffle(Sum2 value, int mask) {
  return {__shfl_xor_sync(0xffffffffu, value.first, mask),
          __shfl_xor_sync(0xffffffffu, value.second, mask)};
}
__device__ __forceinline__ ExpSum shuffle(ExpSum value, int mask) {
  return {__shfl_xor_sync(0xffffffffu, value.max, mask),
          __shfl_xor_sync(0xffffffffu, value.sum, mask)};
}

// A block of a CUDA grid; its size is a multiple of the warp size. One-dimensional.
class DeviceBlock {
 public:
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int64_t num_blocks() const { return gridDim.x; }
  __device__ int size() const { return static_cast<int>(blockDim.x); }

  // A barrier follows: what a thread has written is visible to all afterwards.
  template <typename Function>
  __device__ __forceinline__ void for_each_thread(Function&& function) const {
    function(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  // Combines the values that `function` returns for each thread.
  template <typename Function>
  __device__ __forceinline__ auto reduce(Function&& function) const {
    auto value = function(static_cast<int>(threadIdx.x));
    using Value = decltype(value);
    __shared__ Value of_warps[kMaxBlockSize / kWarpSize];
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2)
      value = combine(value, shuffle(value, mask));
    __syncthreads();  // the values of the previous reduction are read
    if (threadIdx.x % kWarpSize == 0) of_warps[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    Value total = of_warps[0];
    for (int warp = 1; warp < size() / kWarpSize; ++warp) total = combine(total, of_warps[warp]);
    return total;
  }
};

#else

// The same on the host, in one thread.
class HostBlock {
 public:
  HostBlock(int64_t index, int64_t num_blocks, int size)
      : index_(index), num_blocks_(num_blocks), size_(size) {}

  int64_t index() const { return index_; }
  int64_t num_blocks() const { return num_blocks_; }
  int size() const { return size_; }

  template <typename Function>
  void for_each_thread(Function&& function) const {
    for (int thread = 0; thread < size_; ++thread) function(thread);
  }

  template <typename Function>
  auto reduce(Function&& function) const {
    using Value = decltype(function(0));
    Value values[kMaxBlockSize];
    for (int thread = 0; thread < size_; ++thread) values[thread] = function(thread);
    Value total{};
    for (int first = 0; first < size_; first += kWarpSize) {
      Value* const warp = values + first;
      for (int mask = kWarpSize / 2; mask > 0; mask /= 2)
        for (int lane = 0; lane < mask; ++lane) warp[lane] = combine(warp[lane], warp[lane + mask]);
      total = first == 0 ? warp[0] : combine(total, warp[0]);
    }
    return total;
  }

 private:
  const int64_t index_, num_blocks_;
  const int size_;
};

#endif

}  // namespace stoker::cuda
