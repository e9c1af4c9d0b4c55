#include "shared/image/resize_kernels.h"

#include <cstring>
#include <utility>

#include "shared/base/target_clones.h"

namespace stoker::image {
namespace {

constexpr uint32_t kWeightsPerIteration = 6;  // weights per loop iteration

using Word = uint16_t;
using Words8 = Word __attribute__((vector_size(16)));
using Bytes16 = uint8_t __attribute__((vector_size(16)));

// Forced inlining, so that each clone of the functions below gets its own version of the loops.
#define STOKER_INLINE [[gnu::always_inline]] inline

STOKER_INLINE Word upper_half(Word value, Word weight) {
  return static_cast<Word>(uint32_t{value} * weight >> 16);
}
STOKER_INLINE Word level(uint8_t byte) { return static_cast<Word>(byte << 8); }

// Average truncation error of `taps` products.
STOKER_INLINE Word truncation_error(uint32_t taps) { return static_cast<Word>(taps / 2); }

// ---- Vertical

template <bool kFirst, size_t... kTap>
STOKER_INLINE void add_rows(const uint8_t* const* rows, const Word* weights, Word start,
                            size_t count, Word* __restrict out, std::index_sequence<kTap...>) {
  const uint8_t* const row[] = {rows[kTap]...};
  const Word weight[] = {weights[kTap]...};
  for (size_t i = 0; i < count; ++i) {
    Word sum = kFirst ? start : out[i];
    ((sum = static_cast<Word>(sum + upper_half(level(row[kTap][i]), weight[kTap]))), ...);
    out[i] = sum;
  }
}

template <bool kFirst>
STOKER_INLINE void add_some_rows(const uint8_t* const* rows, const Word* weights, uint32_t taps,
                                 Word start, size_t count, Word* out) {
  const auto add = [&](auto tap_numbers) {
    add_rows<kFirst>(rows, weights, start, count, out, tap_numbers);
  };
  switch (taps) {
    case 1:
      return add(std::make_index_sequence<1>());
    case 2:
      return add(std::make_index_sequence<2>());
    case 3:
      return add(std::make_index_sequence<3>());
    case 4:
      return add(std::make_index_sequence<4>());
    case 5:
      return add(std::make_index_sequence<5>());
    default:
      return add(std::make_index_sequence<kWeightsPerIteration>());
  }
}

// ---- Horizontal

// One output column: `count` values with the same weights, for all channels of all lanes.
template <bool kFirst, size_t... kTap>
STOKER_INLINE void add_columns(const Word* columns, const Word* weights, size_t count, Word start,
                               Word* __restrict out, std::index_sequence<kTap...>) {
  const Word* const column[] = {columns + kTap * count...};
  const Word weight[] = {weights[kTap]...};
  for (size_t i = 0; i < count; ++i) {
    Word sum = kFirst ? start : out[i];
    ((sum = static_cast<Word>(sum + upper_half(column[kTap][i], weight[kTap]))), ...);
    out[i] = sum;
  }
}

// All output columns, if the weights fit into one loop iteration.
template <size_t kTaps>
STOKER_INLINE void accumulate_in_one_iteration(const Word* columns, size_t count,
                                               const ColumnWeights& kernel, Word* out) {
  for (uint32_t x = 0; x < kernel.outputs; ++x, out += count)
    add_columns<true>(columns + kernel.first[x] * count, kernel.weights + size_t{x} * kernel.taps,
                      count, truncation_error(kernel.taps), out, std::make_index_sequence<kTaps>());
}

STOKER_INLINE void accumulate_in_iterations(const Word* columns, size_t count,
                                            const ColumnWeights& kernel, Word* out) {
  for (uint32_t x = 0; x < kernel.outputs; ++x, out += count) {
    const Word* weights = kernel.weights + size_t{x} * kernel.taps;
    const Word* from = columns + kernel.first[x] * count;
    add_columns<true>(from, weights, count, truncation_error(kernel.taps), out,
                      std::make_index_sequence<kWeightsPerIteration>());
    uint32_t tap = kWeightsPerIteration;
    for (; tap + kWeightsPerIteration <= kernel.taps; tap += kWeightsPerIteration)
      add_columns<false>(from + tap * count, weights + tap, count, 0, out,
                         std::make_index_sequence<kWeightsPerIteration>());
    for (; tap < kernel.taps; ++tap)
      add_columns<false>(from + tap * count, weights + tap, count, 0, out,
                         std::make_index_sequence<1>());
  }
}

STOKER_INLINE void round_to_levels(const Word* values, size_t count, uint8_t* __restrict levels) {
  for (size_t i = 0; i < count; ++i)
    levels[i] = static_cast<uint8_t>(static_cast<Word>(values[i] + 128) >> 8);
}

// ---- Transposition

#define STOKER_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)

STOKER_INLINE void transpose_8x8(const Word* rows, size_t stride, Word* columns) {
  Words8 in[8], pairs[8], quads[8];
  for (size_t i = 0; i < 8; ++i) std::memcpy(&in[i], rows + i * stride, sizeof in[i]);
  for (size_t i = 0; i < 4; ++i) {
    pairs[2 * i] = STOKER_PICK(in[i], in[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[2 * i + 1] = STOKER_PICK(in[i], in[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (size_t i = 0; i < 4; ++i) {
    quads[2 * i] = STOKER_PICK(pairs[i], pairs[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    quads[2 * i + 1] = STOKER_PICK(pairs[i], pairs[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (size_t i = 0; i < 4; ++i) {
    const Words8 even = STOKER_PICK(quads[i], quads[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
    const Words8 odd = STOKER_PICK(quads[i], quads[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(columns + (2 * i) * kLanes, &even, sizeof even);
    std::memcpy(columns + (2 * i + 1) * kLanes, &odd, sizeof odd);
  }
}

STOKER_INLINE Bytes16 low_halves(Bytes16 a, Bytes16 b) {
  return STOKER_PICK(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
STOKER_INLINE Bytes16 high_halves(Bytes16 a, Bytes16 b) {
  return STOKER_PICK(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// In place: four rounds that interleave each vector with the one eight positions later.
STOKER_INLINE void transpose_16x16(Bytes16 (&block)[16]) {
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    Bytes16 woven[16];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
      woven[2 * i] = low_halves(block[i], block[i + 8]);
      woven[2 * i + 1] = high_halves(block[i], block[i + 8]);
    }
    std::memcpy(block, woven, sizeof woven);
  }
}

}  // namespace

STOKER_TARGET_CLONES
void accumulate_rows(const uint8_t* const* rows, const uint16_t* weights, uint32_t taps,
                     size_t count, uint16_t* out) {
  add_some_rows<true>(rows, weights, taps, truncation_error(taps), count, out);
  for (uint32_t tap = kWeightsPerIteration; tap < taps; tap += kWeightsPerIteration)
    add_some_rows<false>(rows + tap, weights + tap, taps - tap, 0, count, out);
}

STOKER_TARGET_CLONES
void accumulate_columns(const uint16_t* columns, uint32_t channels, const ColumnWeights& kernel,
                        uint16_t* sums, uint8_t* out) {
  const size_t count = size_t{channels} * kLanes;
  switch (kernel.taps) {
    case 1:
      accumulate_in_one_iteration<1>(columns, count, kernel, sums);
      break;
    case 2:
      accumulate_in_one_iteration<2>(columns, count, kernel, sums);
      break;
    case 3:
      accumulate_in_one_iteration<3>(columns, count, kernel, sums);
      break;
    case 4:
      accumulate_in_one_iteration<4>(columns, count, kernel, sums);
      break;
    case 5:
      accumulate_in_one_iteration<5>(columns, count, kernel, sums);
      break;
    default:
      accumulate_in_iterations(columns, count, kernel, sums);
  }
  round_to_levels(sums, kernel.outputs * count, out);
}

STOKER_TARGET_CLONES
void rows_to_columns(const uint16_t* rows, size_t stride, size_t count, uint16_t* columns) {
  for (size_t i = 0; i < count; i += 8)
    for (size_t lane = 0; lane < kLanes; lane += 8)
      transpose_8x8(rows + lane * stride + i, stride, columns + i * kLanes + lane);
}

STOKER_TARGET_CLONES
void columns_to_rows(const uint8_t* columns, uint32_t channels, uint32_t count, uint32_t lanes,
                     uint8_t* rows, size_t stride) {
  const size_t step = size_t{channels} * kLanes;
  for (uint32_t x = 0; x < count; x += kLanes) {
    const size_t bytes = count - x < kLanes ? count - x : kLanes;
    Bytes16 block[kLanes] = {};
    for (size_t i = 0; i < bytes; ++i)
      std::memcpy(&block[i], columns + (x + i) * step, sizeof block[i]);
    transpose_16x16(block);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      if (bytes == kLanes) {
        std::memcpy(rows + lane * stride + x, &block[lane], kLanes);
      } else {
        std::memcpy(rows + lane * stride + x, &block[lane], bytes);
      }
    }
  }
}

STOKER_TARGET_CLONES
void split_channels(const uint8_t* row, uint32_t channels, size_t count, uint8_t* planes,
                    size_t plane) {
  if (channels == 1) {
    std::memcpy(planes, row, count);
    return;
  }
  size_t x = 0;
  for (; x + 16 <= count; x += 16) {
    Bytes16 in[3];
    std::memcpy(in, row + 3 * x, sizeof in);
    // The first eleven (blue: ten) values of a color are in the first two vectors, the rest in the
    // third.
    const Bytes16 red = STOKER_PICK(
        STOKER_PICK(in[0], in[1], 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0), in[2], 0,
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29);
    const Bytes16 green = STOKER_PICK(
        STOKER_PICK(in[0], in[1], 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0), in[2], 0,
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30);
    const Bytes16 blue = STOKER_PICK(
        STOKER_PICK(in[0], in[1], 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0), in[2], 0,
        1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31);
    std::memcpy(planes + x, &red, sizeof red);
    std::memcpy(planes + plane + x, &green, sizeof green);
    std::memcpy(planes + 2 * plane + x, &blue, sizeof blue);
  }
  for (; x < count; ++x)
    for (size_t c = 0; c < 3; ++c) planes[c * plane + x] = row[3 * x + c];
}

}  // namespace stoker::image
