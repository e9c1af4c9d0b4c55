#include "shared/dataset/npy_tensor.h"

namespace stoker::dataset {
namespace {

bool is_channels(uint64_t side) { return side == 1 || side == 3; }

}  // namespace

NpyTensorForm npy_tensor_form(const NpyType& type, std::span<const uint64_t> shape) {
  const auto side = [&](size_t i) { return static_cast<int64_t>(shape[i]); };
  NpyTensorForm form{.shape = {shape.begin(), shape.end()}};
  if (form.shape.empty()) form.shape = {1};
  const bool is_byte = type == NpyType{'u', 1};
  form.is_image = is_byte && (shape.size() == 2 || shape.size() == 3);
  if (!form.is_image) return form;
  if (shape.size() == 2) {
    form.shape = {1, side(0), side(1)};
  } else if (!is_channels(shape[0]) && is_channels(shape[2])) {
    form.is_interleaved = shape[2] > 1;
    form.shape = {side(2), side(0), side(1)};
  }
  return form;
}

void deinterleave(std::span<const std::byte> pixels, size_t channels, std::span<std::byte> planes) {
  const size_t count = pixels.size() / channels;
  for (size_t channel = 0; channel < channels; ++channel)
    for (size_t pixel = 0; pixel < count; ++pixel)
      planes[channel * count + pixel] = pixels[pixel * channels + channel];
}

}  // namespace stoker::dataset
