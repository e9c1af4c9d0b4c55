#include "shared/image/block_resizer.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "shared/image/resize_kernels.h"

namespace stoker::image {
namespace {

size_t rounded_up(size_t value, size_t step) { return (value + step - 1) / step * step; }

template <typename T>
void reserve_rows(std::vector<T>& values, size_t count) {
  if (values.size() < count) values.resize(count);
}

}  // namespace

void BlockResizer::begin(const ResampleKernel& across, const ResampleKernel& down,
                         const ImageShape& shape, std::span<std::byte> planes, size_t row_bytes,
                         uint32_t left) {
  assert((shape.channels == 1 || shape.channels == 3) && planes.size() == shape.bytes());
  assert(left <= across.first() && row_bytes >= size_t{across.end() - left} * shape.channels);
  shape_ = shape;
  planes_ = planes;
  unused_bytes_ = size_t{across.first() - left} * shape.channels;
  only_split_ = across.only_picks() && down.only_picks();
  next_row_ = summed_ = 0;
  rows_.reserve(down.max_weights(), row_bytes);
  if (only_split_) return;
  across_.prepare(across, across.first());
  down_.prepare(down, down.first());
  down_counts_.resize(down.outputs());
  for (uint32_t y = 0; y < down.outputs(); ++y) down_counts_[y] = down.window(y).count;
  row_values_ = size_t{across.end() - across.first()} * shape.channels;
  block_stride_ = rounded_up(row_values_, 8);
  reserve_rows(block_, kLanes * block_stride_);
  // A window at the right end has weights of zero past it.
  reserve_rows(turned_, (block_stride_ + size_t{across_.taps()} * shape.channels) * kLanes);
  reserve_rows(sums_, size_t{shape.width} * shape.channels * kLanes);
  reserve_rows(narrow_, size_t{shape.width} * shape.channels * kLanes);
}

void BlockResizer::push() {
  if (only_split_) {
    split_channels(used(next_row_), shape_.channels, shape_.width, plane_row(0, next_row_),
                   size_t{shape_.height} * shape_.width);
    ++next_row_;
    return;
  }
  ++next_row_;
  while (summed_ < shape_.height && down_.first()[summed_] + down_counts_[summed_] <= next_row_) {
    sum_up_rows();
    if (++summed_ % kLanes == 0 || summed_ == shape_.height) finish_block();
  }
}

void BlockResizer::sum_up_rows() {
  std::array<const uint8_t*, FixedPointKernel::kMaxTaps> rows;
  const uint32_t taps = down_counts_[summed_];
  for (uint32_t i = 0; i < taps; ++i) rows[i] = used(down_.first()[summed_] + i);
  accumulate_rows(rows.data(), down_.weights_of(summed_), taps, row_values_,
                  block_.data() + summed_ % kLanes * block_stride_);
}

void BlockResizer::finish_block() {
  const uint32_t first = (summed_ - 1) / kLanes * kLanes;
  rows_to_columns(block_.data(), block_stride_, block_stride_, turned_.data());
  accumulate_columns(turned_.data(), shape_.channels,
                     {.first = across_.first(),
                      .weights = across_.weights(),
                      .taps = across_.taps(),
                      .outputs = shape_.width},
                     sums_.data(), narrow_.data());
  for (uint32_t c = 0; c < shape_.channels; ++c)
    columns_to_rows(narrow_.data() + size_t{c} * kLanes, shape_.channels, shape_.width,
                    summed_ - first, plane_row(c, first), shape_.width);
}

uint8_t* BlockResizer::plane_row(uint32_t channel, uint32_t y) const {
  return reinterpret_cast<uint8_t*>(planes_.data()) +
         (size_t{channel} * shape_.height + y) * shape_.width;
}

}  // namespace stoker::image
