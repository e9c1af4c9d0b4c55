#include "shared/image/resizer.h"

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
  // A window at the right edge can have zero weights beyond it.
  reserve_rows(transposed_, (block_stride_ + size_t{across_.taps()} * shape.channels) * kLanes);
  reserve_rows(sums_, size_t{shape.width} * shape.channels * kLanes);
  reserve_rows(resized_columns_, size_t{shape.width} * shape.channels * kLanes);
}

void BlockResizer::push() {
  if (only_split_) {
    split_channels(used_row(next_row_), shape_.channels, shape_.width, plane_row(0, next_row_),
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
  for (uint32_t i = 0; i < taps; ++i) rows[i] = used_row(down_.first()[summed_] + i);
  accumulate_rows(rows.data(), down_.weights_of(summed_), taps, row_values_,
                  block_.data() + summed_ % kLanes * block_stride_);
}

void BlockResizer::finish_block() {
  const uint32_t first = (summed_ - 1) / kLanes * kLanes;
  rows_to_columns(block_.data(), block_stride_, block_stride_, transposed_.data());
  accumulate_columns(transposed_.data(), shape_.channels,
                     {.first = across_.first(),
                      .weights = across_.weights(),
                      .taps = across_.taps(),
                      .outputs = shape_.width},
                     sums_.data(), resized_columns_.data());
  for (uint32_t c = 0; c < shape_.channels; ++c)
    columns_to_rows(resized_columns_.data() + size_t{c} * kLanes, shape_.channels, shape_.width,
                    summed_ - first, plane_row(c, first), shape_.width);
}

uint8_t* BlockResizer::plane_row(uint32_t channel, uint32_t y) const {
  return reinterpret_cast<uint8_t*>(planes_.data()) +
         (size_t{channel} * shape_.height + y) * shape_.width;
}

namespace {

// `row` starts with column `left`.
template <int kChannels>
void resize_across(const ResampleKernel& kernel, const uint8_t* row, uint32_t left, uint8_t* out) {
  for (uint32_t x = 0; x < kernel.outputs(); ++x) {
    const ResampleKernel::Window& window = kernel.window(x);
    const int32_t* weights = kernel.weights(window);
    const uint8_t* pixel = row + size_t{window.first - left} * kChannels;
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, ResampleKernel::kHalf);
    for (uint32_t i = 0; i < window.count; ++i, pixel += kChannels)
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[i] * pixel[c];
    for (int c = 0; c < kChannels; ++c) *out++ = ResampleKernel::to_byte(sums[c]);
  }
}

}  // namespace

void RowResizer::begin(const ResampleKernel& across, const ResampleKernel& down,
                       const ImageShape& shape, std::span<std::byte> planes, size_t row_bytes,
                       uint32_t left) {
  assert((shape.channels == 1 || shape.channels == 3) && planes.size() == shape.bytes());
  assert(left <= across.first() && row_bytes >= size_t{across.end() - left} * shape.channels);
  shape_ = shape;
  planes_ = planes;
  across_ = &across;
  down_ = &down;
  left_ = left;
  row_values_ = size_t{shape.width} * shape.channels;
  ring_ = down.overlap();
  next_row_ = down.first();
  started_ = finished_ = 0;
  row_.reserve(1, row_bytes);
  resized_columns_.resize(row_values_);
  sums_.resize(ring_ * row_values_);
}

void RowResizer::push() {
  if (shape_.channels == 3) {
    resize_across<3>(*across_, row_.row(0), left_, resized_columns_.data());
  } else {
    resize_across<1>(*across_, row_.row(0), left_, resized_columns_.data());
  }
  add_to_output_rows();
  ++next_row_;
}

void RowResizer::add_to_output_rows() {
  while (started_ < down_->outputs() && down_->window(started_).first <= next_row_) {
    std::fill_n(sums_of(started_), row_values_, ResampleKernel::kHalf);
    ++started_;
  }
  for (uint32_t y = finished_; y < started_; ++y) {
    const ResampleKernel::Window& window = down_->window(y);
    const int32_t weight = down_->weights(window)[next_row_ - window.first];
    int32_t* sums = sums_of(y);
    const uint8_t* values = resized_columns_.data();
    for (size_t i = 0; i < row_values_; ++i) sums[i] += weight * values[i];
  }
  while (finished_ < started_ && down_->window(finished_).end() == next_row_ + 1)
    write_output_row(finished_++);
}

void RowResizer::write_output_row(uint32_t y) {
  const int32_t* sums = sums_of(y);
  const size_t plane = size_t{shape_.height} * shape_.width;
  auto* out = reinterpret_cast<uint8_t*>(planes_.data()) + size_t{y} * shape_.width;
  const uint32_t channels = shape_.channels;
  for (uint32_t c = 0; c < channels; ++c, out += plane)
    for (uint32_t x = 0; x < shape_.width; ++x)
      out[x] = ResampleKernel::to_byte(sums[size_t{x} * channels + c]);
}

void Resizer::begin(uint32_t height, uint32_t width, const CropBox& box, const ImageShape& shape,
                    std::span<std::byte> planes, Interpolation interpolation) {
  shape_ = shape;
  planes_ = planes;
  interpolation_ = interpolation;
  across_.prepare(width, box.left, box.width, shape.width, interpolation);
  down_.prepare(height, box.top, box.height, shape.height, interpolation);
}

void Resizer::expect_rows(size_t row_bytes, uint32_t left) {
  // Weights of BlockResizer are neither negative nor exactly 1.
  in_blocks_ = interpolation_ == Interpolation::kBilinear &&
               std::max(across_.max_weights(), down_.max_weights()) <= FixedPointKernel::kMaxTaps;
  if (in_blocks_) {
    blocks_.begin(across_, down_, shape_, planes_, row_bytes, left);
  } else {
    exact_.begin(across_, down_, shape_, planes_, row_bytes, left);
  }
}

}  // namespace stoker::image
