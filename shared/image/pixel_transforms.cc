#include "shared/image/pixel_transforms.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "shared/base/target_clones.h"

namespace stoker::image {
namespace {

struct Planes {
  uint8_t* red;
  uint8_t* green;
  uint8_t* blue;
  size_t pixels;  // per plane
};

Planes planes_of(const ImageShape& shape, std::span<std::byte> planes) {
  assert(shape.channels == 3 && planes.size() == shape.bytes());
  const size_t pixels = size_t{shape.height} * shape.width;
  auto* first = reinterpret_cast<uint8_t*>(planes.data());
  return {.red = first, .green = first + pixels, .blue = first + 2 * pixels, .pixels = pixels};
}

[[gnu::always_inline]] inline uint8_t clamp_to_byte(float level) {
  return static_cast<uint8_t>(static_cast<int32_t>(std::min(std::max(level, 0.0f), 255.0f)));
}

[[gnu::always_inline]] inline uint8_t to_gray(uint8_t red, uint8_t green, uint8_t blue) {
  return clamp_to_byte(0.2989f * red + 0.587f * green + 0.114f * blue);
}

using LevelTable = std::array<uint8_t, 256>;

void map_levels(const LevelTable& table, std::span<std::byte> planes) {
  for (std::byte& value : planes) value = std::byte{table[std::to_integer<size_t>(value)]};
}

// Blends with one value for all pixels, through a table of the 256 levels.
void blend_levels(float factor, float other, std::span<std::byte> planes) {
  LevelTable table;
  for (size_t level = 0; level < table.size(); ++level)
    table[level] = clamp_to_byte(factor * static_cast<float>(level) + other);
  map_levels(table, planes);
}

STOKER_TARGET_CLONES
uint64_t sum_of_gray(const Planes& image) {
  uint64_t sum = 0;
  for (size_t i = 0; i < image.pixels; ++i)
    sum += to_gray(image.red[i], image.green[i], image.blue[i]);
  return sum;
}

uint64_t sum_of(std::span<const std::byte> plane) {
  uint64_t sum = 0;
  for (const std::byte value : plane) sum += std::to_integer<uint64_t>(value);
  return sum;
}

STOKER_TARGET_CLONES
void blend_with_gray(const Planes& image, float factor, float rest) {
  uint8_t* __restrict red = image.red;
  uint8_t* __restrict green = image.green;
  uint8_t* __restrict blue = image.blue;
  for (size_t i = 0; i < image.pixels; ++i) {
    const float gray = rest * to_gray(red[i], green[i], blue[i]);
    red[i] = clamp_to_byte(factor * red[i] + gray);
    green[i] = clamp_to_byte(factor * green[i] + gray);
    blue[i] = clamp_to_byte(factor * blue[i] + gray);
  }
}

// Level of one color channel at hue `sixths`; `hue_offset` is the channel's offset from red. Both
// are in sixths of the hue circle.
[[gnu::always_inline]] inline uint8_t color_level(float hue_offset, float sixths, float max_channel,
                                                  float spread) {
  float turn = hue_offset + sixths;
  turn = turn >= 6.0f ? turn - 6.0f : turn;
  const float away = std::max(0.0f, std::min(1.0f, std::min(turn, 4.0f - turn)));
  // Like torchvision's conversion from [0, 1] to levels: times 255.999, truncated.
  return clamp_to_byte((max_channel - spread * away) * (255.999f / 255.0f));
}

STOKER_TARGET_CLONES
void rotate_hue(const Planes& image, float sixths) {
  uint8_t* __restrict reds = image.red;
  uint8_t* __restrict greens = image.green;
  uint8_t* __restrict blues = image.blue;
  for (size_t i = 0; i < image.pixels; ++i) {
    const float red = reds[i], green = greens[i], blue = blues[i];
    const float max_channel = std::max(red, std::max(green, blue));
    const float spread = max_channel - std::min(red, std::min(green, blue));
    const float divisor = spread > 0.0f ? spread : 1.0f;
    const float from_blue = 4.0f + (red - green) / divisor;
    const float from_green = 2.0f + (blue - red) / divisor;
    const float from_red = (green - blue) / divisor;
    const float not_red = max_channel == green ? from_green : from_blue;
    float hue = (max_channel == red ? from_red : not_red) + sixths;
    hue = hue < 0.0f ? hue + 6.0f : hue;
    hue = hue >= 6.0f ? hue - 6.0f : hue;
    reds[i] = color_level(5.0f, hue, max_channel, spread);
    greens[i] = color_level(3.0f, hue, max_channel, spread);
    blues[i] = color_level(1.0f, hue, max_channel, spread);
  }
}

}  // namespace

void adjust_brightness(const ImageShape&, double factor, std::span<std::byte> planes) {
  blend_levels(static_cast<float>(factor), 0.0f, planes);
}

void adjust_contrast(const ImageShape& shape, double factor, std::span<std::byte> planes) {
  const uint64_t sum = shape.channels == 3 ? sum_of_gray(planes_of(shape, planes)) : sum_of(planes);
  const double mean = static_cast<double>(sum) / (double(shape.height) * shape.width);
  blend_levels(static_cast<float>(factor),
               static_cast<float>(1 - factor) * static_cast<float>(mean), planes);
}

void adjust_saturation(const ImageShape& shape, double factor, std::span<std::byte> planes) {
  if (shape.channels == 1) return;
  blend_with_gray(planes_of(shape, planes), static_cast<float>(factor),
                  static_cast<float>(1 - factor));
}

void adjust_hue(const ImageShape& shape, double turn, std::span<std::byte> planes) {
  if (shape.channels == 3) rotate_hue(planes_of(shape, planes), static_cast<float>(turn * 6));
}

namespace {

// The planes one after another.
template <typename Function>
void for_each_plane(const ImageShape& shape, std::span<std::byte> planes,
                    const Function& function) {
  assert(planes.size() == shape.bytes());
  const size_t pixels = size_t{shape.height} * shape.width;
  for (uint32_t c = 0; c < shape.channels; ++c) function(planes.subspan(c * pixels, pixels));
}

using Histogram = std::array<uint32_t, 256>;

Histogram histogram_of(std::span<const std::byte> plane) {
  Histogram counts{};
  for (const std::byte value : plane) ++counts[std::to_integer<size_t>(value)];
  return counts;
}

STOKER_TARGET_CLONES
void blend_rows_with_blurred(const uint8_t* from, size_t height, size_t width, double alpha,
                             uint8_t* to) {
  for (size_t y = 1; y + 1 < height; ++y)
    for (size_t x = 1; x + 1 < width; ++x) {
      const uint8_t* const row = from + y * width + x;
      const uint8_t* const above = row - width;
      const uint8_t* const below = row + width;
      const int sum = above[-1] + above[0] + above[1] + row[-1] + 5 * row[0] + row[1] + below[-1] +
                      below[0] + below[1];
      const int blurred = (2 * sum + 13) / 26;  // sum / 13, rounded; it is never halfway
      // A double holds the product exactly, so that the sum is rounded once, as by a fused
      // multiply-add, which PyTorch uses.
      to[y * width + x] = clamp_to_byte(static_cast<float>(row[0] + alpha * (blurred - row[0])));
    }
}

}  // namespace

void adjust_sharpness(const ImageShape& shape, double factor, std::span<std::byte> planes) {
  if (shape.height <= 2 || shape.width <= 2) return;
  const double alpha = static_cast<float>(1 - factor);
  thread_local std::vector<uint8_t> original;
  for_each_plane(shape, planes, [&](std::span<std::byte> plane) {
    auto* const pixels = reinterpret_cast<uint8_t*>(plane.data());
    original.assign(pixels, pixels + plane.size());
    blend_rows_with_blurred(original.data(), shape.height, shape.width, alpha, pixels);
  });
}

void make_grayscale(const ImageShape& shape, std::span<std::byte> planes) {
  if (shape.channels == 1) return;
  const Planes image = planes_of(shape, planes);
  for (size_t i = 0; i < image.pixels; ++i)
    image.red[i] = image.green[i] = image.blue[i] =
        to_gray(image.red[i], image.green[i], image.blue[i]);
}

void invert(std::span<std::byte> planes) {
  for (std::byte& value : planes) value = ~value;
}

void posterize(int bits, std::span<std::byte> planes) {
  assert(bits >= 0 && bits <= 8);
  const auto mask = static_cast<std::byte>(0xff << (8 - bits));
  for (std::byte& value : planes) value &= mask;
}

void solarize(double threshold, std::span<std::byte> planes) {
  LevelTable table;
  for (size_t level = 0; level < table.size(); ++level)
    table[level] = static_cast<uint8_t>(
        static_cast<float>(level) >= static_cast<float>(threshold) ? 255 - level : level);
  map_levels(table, planes);
}

void autocontrast(const ImageShape& shape, std::span<std::byte> planes) {
  for_each_plane(shape, planes, [](std::span<std::byte> plane) {
    const auto [first, last] = std::minmax_element(plane.begin(), plane.end());
    if (plane.empty() || *first == *last) return;
    const float low = std::to_integer<uint8_t>(*first), high = std::to_integer<uint8_t>(*last);
    const float scale = (high - low) * static_cast<float>(1.0 / 255);
    LevelTable table;
    for (size_t level = 0; level < table.size(); ++level)
      table[level] = clamp_to_byte((static_cast<float>(level) - low) / scale);
    map_levels(table, plane);
  });
}

void equalize(const ImageShape& shape, std::span<std::byte> planes) {
  for_each_plane(shape, planes, [](std::span<std::byte> plane) {
    const Histogram counts = histogram_of(plane);
    const auto top = std::find_if(counts.rbegin(), counts.rend(), [](uint32_t n) { return n > 0; });
    if (top == counts.rend()) return;
    const uint64_t step = (plane.size() - *top) / 255;
    if (step == 0) return;
    LevelTable table;
    uint64_t below = 0;  // number of pixels with a lower level
    for (size_t level = 0; level < table.size(); ++level) {
      table[level] = static_cast<uint8_t>(std::min<uint64_t>((below + step / 2) / step, 255));
      below += counts[level];
    }
    map_levels(table, plane);
  });
}

namespace {

std::vector<float> gaussian_kernel(int size, double sigma) {
  const double lim = (size - 1) / (2 * std::sqrt(2.0));
  std::vector<double> weights;
  double sum = 0;
  for (int i = 0; i < size; ++i) {
    const double x = size == 1 ? 0 : (2.0 * i / (size - 1) - 1) * lim / sigma;
    weights.push_back(std::exp(-x * x));
    sum += weights.back();
  }
  std::vector<float> kernel;
  for (const double weight : weights) kernel.push_back(static_cast<float>(weight / sum));
  return kernel;
}

// Index of a pixel beyond an edge: the edge itself is not repeated.
int reflected(int index, int side) {
  if (index < 0) return -index;
  return index < side ? index : 2 * (side - 1) - index;
}

STOKER_TARGET_CLONES
void add_weighted(const uint8_t* from, float weight, size_t count, float* sums) {
  for (size_t i = 0; i < count; ++i) sums[i] += weight * from[i];
}

STOKER_TARGET_CLONES
void convolve_row(const float* padded, const std::vector<float>& kernel, size_t width,
                  uint8_t* row) {
  for (size_t x = 0; x < width; ++x) {
    float sum = 0;
    for (size_t k = 0; k < kernel.size(); ++k) sum += kernel[k] * padded[x + k];
    row[x] = clamp_to_byte(sum + 0.5f);
  }
}

}  // namespace

void gaussian_blur(const ImageShape& shape, int kernel_size, double sigma,
                   std::span<std::byte> planes) {
  const int half = kernel_size / 2;
  const auto height = static_cast<int>(shape.height), width = static_cast<int>(shape.width);
  assert(kernel_size % 2 == 1 && half < height && half < width && sigma > 0);
  const std::vector<float> kernel = gaussian_kernel(kernel_size, sigma);
  thread_local std::vector<uint8_t> original;
  thread_local std::vector<float> padded;
  for_each_plane(shape, planes, [&](std::span<std::byte> plane) {
    auto* const pixels = reinterpret_cast<uint8_t*>(plane.data());
    original.assign(pixels, pixels + plane.size());
    for (int y = 0; y < height; ++y) {
      padded.assign(shape.width + 2 * static_cast<size_t>(half), 0.0f);
      float* const sums = padded.data() + half;
      for (int k = 0; k < kernel_size; ++k)
        add_weighted(original.data() + size_t(reflected(y + k - half, height)) * shape.width,
                     kernel[size_t(k)], shape.width, sums);
      for (int i = 1; i <= half; ++i) {
        sums[-i] = sums[i];
        sums[width - 1 + i] = sums[width - 1 - i];
      }
      convolve_row(padded.data(), kernel, shape.width, pixels + size_t(y) * shape.width);
    }
  });
}

void erase(const ImageShape& shape, const PixelBox& box, const std::array<uint8_t, 3>& levels,
           std::span<std::byte> planes) {
  assert(box.top + box.height <= shape.height && box.left + box.width <= shape.width);
  auto level = levels.begin();
  for_each_plane(shape, planes, [&](std::span<std::byte> plane) {
    for (uint32_t y = box.top; y < box.top + box.height; ++y)
      std::memset(plane.data() + size_t{y} * shape.width + box.left, *level, box.width);
    ++level;
  });
}

namespace {

using Bytes16 = uint8_t __attribute__((vector_size(16)));

[[gnu::always_inline]] inline Bytes16 reversed(const uint8_t* from) {
  Bytes16 bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return __builtin_shufflevector(bytes, bytes, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1,
                                 0);
}

STOKER_TARGET_CLONES
void flip_rows(uint8_t* row, size_t rows, size_t width) {
  for (; rows > 0; --rows, row += width) {
    uint8_t* left = row;
    uint8_t* right = row + width;
    while (right - left >= 32) {
      const Bytes16 from_left = reversed(left);
      const Bytes16 from_right = reversed(right - 16);
      std::memcpy(left, &from_right, 16);
      std::memcpy(right - 16, &from_left, 16);
      left += 16;
      right -= 16;
    }
    while (left < right) std::swap(*left++, *--right);
  }
}

}  // namespace

void horizontal_flip(const ImageShape& shape, std::span<std::byte> planes) {
  assert(planes.size() == shape.bytes());
  flip_rows(reinterpret_cast<uint8_t*>(planes.data()), size_t{shape.channels} * shape.height,
            shape.width);
}

void vertical_flip(const ImageShape& shape, std::span<std::byte> planes) {
  for_each_plane(shape, planes, [&shape](std::span<std::byte> plane) {
    const size_t width = shape.width;
    for (size_t top = 0, bottom = shape.height - size_t{1}; top < bottom; ++top, --bottom)
      std::swap_ranges(plane.data() + top * width, plane.data() + (top + 1) * width,
                       plane.data() + bottom * width);
  });
}

namespace {

// Copies a row from another row of the same plane; `from` is null for a row outside the image.
void shift_row(std::byte* to, const std::byte* from, uint32_t width, int32_t across) {
  if (!from) {
    std::memset(to, 0, width);
    return;
  }
  const auto gap = static_cast<size_t>(std::abs(across));
  if (across >= 0) {
    std::memmove(to, from + gap, width - gap);
    std::memset(to + width - gap, 0, gap);
  } else {
    std::memmove(to + gap, from, width - gap);
    std::memset(to, 0, gap);
  }
}

}  // namespace

void shift_with_fill(const ImageShape& shape, int32_t down, int32_t across,
                     std::span<std::byte> planes) {
  const auto height = static_cast<int32_t>(shape.height);
  assert(planes.size() == shape.bytes() && std::abs(down) < height);
  assert(std::abs(across) < static_cast<int32_t>(shape.width));
  if (down == 0 && across == 0) return;
  const size_t plane_bytes = size_t{shape.height} * shape.width;
  for (uint32_t c = 0; c < shape.channels; ++c) {
    std::byte* plane = planes.data() + c * plane_bytes;
    const auto row = [&](int32_t y) { return plane + size_t(y) * shape.width; };
    // In an order that moves each row before it is overwritten.
    for (int32_t i = 0; i < height; ++i) {
      const int32_t y = down >= 0 ? i : height - 1 - i;
      const int32_t from = y + down;
      shift_row(row(y), from >= 0 && from < height ? row(from) : nullptr, shape.width, across);
    }
  }
}

}  // namespace stoker::image
