#include "shared/image/row_resizer.h"

#include <algorithm>
#include <cassert>

namespace stoker::image {
namespace {

// `row` begins with column `left`.
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
  narrow_.resize(row_values_);
  sums_.resize(ring_ * row_values_);
}

void RowResizer::push() {
  if (shape_.channels == 3) {
    resize_across<3>(*across_, row_.row(0), left_, narrow_.data());
  } else {
    resize_across<1>(*across_, row_.row(0), left_, narrow_.data());
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
    const uint8_t* values = narrow_.data();
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

}  // namespace stoker::image
