// Random resized crops of a decoded photograph to 224 x 224 planes, compared with stb_image_resize
// and, if it is installed, libvips.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

// Version 0.96 aborts on some of the boxes: "total < 1.1f".
#define STBIR_ASSERT(condition)
#define STB_IMAGE_RESIZE_STATIC
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include <stb/stb_image_resize.h>

#ifdef STOKER_WITH_VIPS
#include <vips/vips.h>
#endif

#include "bench/cpu_time.h"
#include "bench/library_benches.h"
#include "shared/image/resize_kernels.h"
#include "shared/image/resizer.h"

namespace stoker::bench {
namespace {

using image::CropBox;
using image::ImageShape;

constexpr uint32_t kHeight = 375, kWidth = 500;  // the average of ImageNet
constexpr ImageShape kShape{.channels = 3, .height = 224, .width = 224};
constexpr size_t kRowBytes = size_t{kWidth} * 3;
constexpr size_t kBoxes = 64;

struct Crops {
  std::vector<uint8_t> pixels = std::vector<uint8_t>(kHeight * kRowBytes);  // interleaved
  std::vector<CropBox> boxes;
};

// The boxes of random_resized_crop with its default scale and ratio, on whole pixels.
std::shared_ptr<Crops> make_crops() {
  auto crops = std::make_shared<Crops>();
  for (uint32_t y = 0; y < kHeight; ++y)
    for (size_t i = 0; i < kRowBytes; ++i)
      crops->pixels[y * kRowBytes + i] =
          static_cast<uint8_t>(128 + 100 * std::sin(0.02 * y + 0.01 * static_cast<double>(i)));
  std::mt19937 random(1);
  const auto uniform = [&random](double low, double high) {
    return low + (high - low) * (static_cast<double>(random()) / 4294967296.0);
  };
  while (crops->boxes.size() < kBoxes) {
    const double area = uniform(0.08, 1) * kHeight * kWidth;
    const double ratio = std::exp(uniform(std::log(0.75), std::log(4.0 / 3)));
    const double width = std::round(std::sqrt(area * ratio));
    const double height = std::round(std::sqrt(area / ratio));
    if (width > kWidth || height > kHeight) continue;
    crops->boxes.push_back({.left = std::floor(uniform(0, kWidth - width)),
                            .top = std::floor(uniform(0, kHeight - height)),
                            .width = width,
                            .height = height});
  }
  return crops;
}

void interleaved_to_planes(const uint8_t* rows, uint8_t* planes) {
  constexpr size_t kPlane = size_t{kShape.height} * kShape.width;
  image::split_channels(rows, kShape.channels, kPlane, planes, kPlane);
}

using Planes = std::vector<uint8_t>;

// Rows are copied to the resizer, to which libjpeg would write them.
class OwnResizer {
 public:
  Status operator()(const Crops& crops, const CropBox& box, Planes& planes) {
    resizer_.begin(kHeight, kWidth, box, kShape, std::as_writable_bytes(std::span(planes)));
    const auto columns = resizer_.columns();
    const size_t bytes = size_t{columns.end - columns.begin} * 3;
    resizer_.expect_rows(bytes, columns.begin);
    for (uint32_t y = resizer_.rows().begin; y < resizer_.rows().end; ++y) {
      std::memcpy(resizer_.next_row(),
                  crops.pixels.data() + y * kRowBytes + size_t{columns.begin} * 3, bytes);
      resizer_.push();
    }
    return {};
  }

 private:
  image::Resizer resizer_;
};

class StbResizer {
 public:
  Status operator()(const Crops& crops, const CropBox& box, Planes& planes) {
    const auto pixels = [](double value) { return static_cast<int>(value); };
    const uint8_t* const crop = crops.pixels.data() + static_cast<size_t>(box.top) * kRowBytes +
                                static_cast<size_t>(box.left) * 3;
    const int done = ::stbir_resize(crop, pixels(box.width), pixels(box.height), kRowBytes,
                                    rows_.data(), kShape.width, kShape.height, 0, STBIR_TYPE_UINT8,
                                    3, STBIR_ALPHA_CHANNEL_NONE, 0, STBIR_EDGE_CLAMP,
                                    STBIR_EDGE_CLAMP, STBIR_FILTER_TRIANGLE, STBIR_FILTER_TRIANGLE,
                                    STBIR_COLORSPACE_LINEAR, nullptr);
    if (done == 0) return Status(StatusCode::kInternal, "stbir_resize");
    interleaved_to_planes(rows_.data(), planes.data());
    return {};
  }

 private:
  std::vector<uint8_t> rows_ = std::vector<uint8_t>(kShape.bytes());
};

#ifdef STOKER_WITH_VIPS
class VipsResizer {
 public:
  // One thread, as a worker has; the cache of operations would return earlier results.
  VipsResizer() {
    VIPS_INIT("stoker-bench-libraries");
    ::vips_concurrency_set(1);
    ::vips_cache_set_max(0);
  }
  Status operator()(const Crops& crops, const CropBox& box, Planes& planes) {
    const auto pixels = [](double value) { return static_cast<int>(value); };
    VipsImage* const whole = ::vips_image_new_from_memory(crops.pixels.data(), crops.pixels.size(),
                                                          kWidth, kHeight, 3, VIPS_FORMAT_UCHAR);
    VipsImage *crop = nullptr, *resized = nullptr;
    const bool failed =
        ::vips_extract_area(whole, &crop, pixels(box.left), pixels(box.top), pixels(box.width),
                            pixels(box.height), nullptr) != 0 ||
        ::vips_resize(crop, &resized, kShape.width / box.width, "vscale",
                      kShape.height / box.height, "kernel", VIPS_KERNEL_LINEAR, nullptr) != 0;
    size_t bytes = 0;
    void* const rows = failed ? nullptr : ::vips_image_write_to_memory(resized, &bytes);
    if (bytes == kShape.bytes())
      interleaved_to_planes(static_cast<const uint8_t*>(rows), planes.data());
    ::g_free(rows);
    for (VipsImage* const image : {whole, crop, resized})
      if (image != nullptr) ::g_object_unref(image);
    if (bytes == kShape.bytes()) return {};
    return Status(StatusCode::kInternal, ::vips_error_buffer());
  }
};
#endif

template <typename Resize>
Measure microseconds_per_crop(const std::shared_ptr<Crops>& crops, std::chrono::nanoseconds time) {
  const auto resize = std::make_shared<Resize>();
  const auto planes = std::make_shared<Planes>(kShape.bytes());
  return [=]() -> Result<double> {
    const auto work = [&]() -> Status {
      for (const CropBox& box : crops->boxes)
        STOKER_RETURN_IF_ERROR((*resize)(*crops, box, *planes));
      return {};
    };
    STOKER_ASSIGN_OR_RETURN(const double seconds, cpu_time_per_call(work, time));
    return seconds * 1e6 / kBoxes;
  };
}

}  // namespace

Benchmark library_resize() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    const auto crops = make_crops();
    const auto time = options.run_time();
    Trial trial{"random resized crop of 500 x 375 to 224 x 224",
                "us",
                microseconds_per_crop<OwnResizer>(crops, time),
                {{"stb_image_resize", microseconds_per_crop<StbResizer>(crops, time)}}};
#ifdef STOKER_WITH_VIPS
    trial.baselines.push_back({"libvips", microseconds_per_crop<VipsResizer>(crops, time)});
#endif
    return std::vector<Trial>{std::move(trial)};
  };
  return {"resize", "random resized crops, compared with stb_image_resize and libvips", prepare};
}

}  // namespace stoker::bench
