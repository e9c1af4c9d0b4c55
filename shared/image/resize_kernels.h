// resize_kernels: inner loops of BlockResizer, in 16-bit integer arithmetic, which allows many
// values per vector.
//
// Values are in units of 1/256 of a level (0 to 65,280), weights in units of 1/65536 (at most
// 65,535). Only the upper 16 bits of each product are kept, with one instruction for 8 or 16
// values. Each product loses up to 1/256 of a level; half of that is added in advance for each
// weight.
//
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stoker::image {

inline constexpr uint32_t kLanes = 16;  // output rows that are resized horizontally together

// out[i] = sum over k of weights[k] * rows[k][i], for `count` values.
void accumulate_rows(const uint8_t* const* rows, const uint16_t* weights, uint32_t taps,
                     size_t count, uint16_t* out);

// columns[i][lane] = rows[lane][i], for `count` values, a multiple of 8. Rows are `stride` values
// apart.
void rows_to_columns(const uint16_t* rows, size_t stride, size_t count, uint16_t* columns);

// Computes one output column per entry of `first`, each with `taps` weights. For column x of
// channel c:
//   out[(x * channels + c) * kLanes + lane]
//     = sum of weights[x * taps + k] * columns[((first[x] + k) * channels + c) * kLanes + lane],
// rounded to integer levels. `sums` is scratch memory of the size of `out`.
struct ColumnWeights {
  const uint32_t* first;
  const uint16_t* weights;
  uint32_t taps;
  uint32_t outputs;
};
void accumulate_columns(const uint16_t* columns, uint32_t channels, const ColumnWeights& kernel,
                        uint16_t* sums, uint8_t* out);

// rows[lane * stride + x] = columns[x * channels * kLanes + lane] for `count` columns and `lanes`
// rows, for the channel that `columns` points to.
void columns_to_rows(const uint8_t* columns, uint32_t channels, uint32_t count, uint32_t lanes,
                     uint8_t* rows, size_t stride);

// planes[c * plane + x] = row[x * channels + c].
void split_channels(const uint8_t* row, uint32_t channels, size_t count, uint8_t* planes,
                    size_t plane);

}  // namespace stoker::image
