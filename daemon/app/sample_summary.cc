#include "daemon/app/sample_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "shared/base/readable_format.h"
#include "shared/base/tensor_role.h"
#include "shared/data/transform/random_transforms.h"
#include "shared/image/png.h"

namespace stoker::app {
namespace {

constexpr size_t kShownText = 400;    // bytes per sample
constexpr size_t kShownNumbers = 8;   // per sample
constexpr uint32_t kMaxWidth = 1024;  // pixels of the grid
constexpr uint32_t kGap = 2;

// The values of one sample of a component.
struct Values {
  const TensorSpec& spec;
  std::span<const std::byte> bytes;

  template <typename T>
  T at(size_t i) const {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  size_t count() const { return bytes.size() / dtype_bytes(spec.dtype); }
};

std::string format_element(const Values& values, size_t i) {
  switch (values.spec.dtype) {
    case DType::kU8:
      return std::to_string(values.at<uint8_t>(i));
    case DType::kU16:
      return std::to_string(values.at<uint16_t>(i));
    case DType::kI32:
      return std::to_string(values.at<int32_t>(i));
    case DType::kI64:
      return std::to_string(values.at<int64_t>(i));
    case DType::kF32:
      return format_setting(values.at<float>(i));
    case DType::kF64:
      return format_setting(values.at<double>(i));
    case DType::kF16:
    case DType::kBF16:
    case DType::kBool:
    case DType::kI8:
    case DType::kI16:
      break;
  }
  return "?";
}

std::string format_numbers(const Values& values) {
  std::string text;
  for (size_t i = 0; i < std::min(values.count(), kShownNumbers); ++i)
    text += (i > 0 ? " " : "") + format_element(values, i);
  return values.count() > kShownNumbers ? text + " …" : text;
}

// For a cell of a Markdown table.
std::string format_text(const Values& values) {
  std::string text = "`";
  for (size_t i = 0; i < std::min(values.bytes.size(), kShownText); ++i) {
    const char c = static_cast<char>(values.bytes[i]);
    text += c == '`' || c == '|' || static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return text + (values.bytes.size() > kShownText ? "…`" : "`");
}

bool is_image(const TensorSpec& spec) {
  return role_of(spec) == TensorRole::kInput && data::transform::is_image(spec);
}

std::string format_cell(const Values& values, const std::vector<std::string>& class_names) {
  const TensorSpec& spec = values.spec;
  if (is_image(spec)) return "in the image";
  if (role_of(spec) == TensorRole::kTokens && spec.dtype == DType::kU8) return format_text(values);
  std::string text = format_numbers(values);
  if (role_of(spec) != TensorRole::kLabel || spec.dtype != DType::kI64 || values.count() != 1)
    return text;
  const auto label = static_cast<size_t>(values.at<int64_t>(0));
  return label < class_names.size() ? text + " (" + class_names[label] + ")" : text;
}

// Arranges images in a grid, row by row.
class ImageGrid {
 public:
  ImageGrid(const TensorSpec& image, size_t count)
      : planes_(static_cast<uint32_t>(image.shape[0])),
        image_height_(static_cast<uint32_t>(image.shape[1])),
        image_width_(static_cast<uint32_t>(image.shape[2])),
        columns_(std::clamp<uint32_t>(kMaxWidth / (image_width_ + kGap), 1,
                                      static_cast<uint32_t>(count))),
        rows_((static_cast<uint32_t>(count) + columns_ - 1) / columns_),
        rgb_(size_t{3} * width() * height(), 255) {}

  void put(size_t index, std::span<const std::byte> planes) {
    const uint32_t left = static_cast<uint32_t>(index) % columns_ * (image_width_ + kGap);
    const uint32_t top = static_cast<uint32_t>(index) / columns_ * (image_height_ + kGap);
    for (uint32_t y = 0; y < image_height_; ++y)
      for (uint32_t x = 0; x < image_width_; ++x)
        for (uint32_t c = 0; c < 3; ++c) {
          const size_t plane = planes_ == 3 ? c : 0;
          rgb_[(size_t{top + y} * width() + left + x) * 3 + c] =
              static_cast<uint8_t>(planes[(plane * image_height_ + y) * image_width_ + x]);
        }
  }
  Result<std::string> png() const { return image::encode_png(rgb_, width(), height()); }

 private:
  uint32_t width() const { return columns_ * (image_width_ + kGap) - kGap; }
  uint32_t height() const { return rows_ * (image_height_ + kGap) - kGap; }

  const uint32_t planes_, image_height_, image_width_, columns_, rows_;
  std::vector<uint8_t> rgb_;
};

}  // namespace

Result<SampleSummary> summarize_samples(const std::vector<TensorSpec>& spec,
                                        const std::vector<std::vector<std::byte>>& components,
                                        size_t samples,
                                        const std::vector<std::string>& class_names) {
  SampleSummary summary;
  std::string head = "| sample |", line = "|---|";
  for (const TensorSpec& each : spec) {
    head += ' ' + each.name + " |";
    line += "---|";
  }
  summary.table = head + '\n' + line + '\n';
  for (size_t i = 0; i < samples; ++i) {
    summary.table += "| " + std::to_string(i) + " |";
    for (size_t c = 0; c < spec.size(); ++c) {
      const size_t bytes = spec[c].bytes();
      summary.table += ' ';
      summary.table +=
          format_cell({spec[c], std::span(components[c]).subspan(i * bytes, bytes)}, class_names);
      summary.table += " |";
    }
    summary.table += '\n';
  }
  for (size_t c = 0; c < spec.size(); ++c) {
    if (!is_image(spec[c]) || samples == 0) continue;
    ImageGrid grid(spec[c], samples);
    const size_t bytes = spec[c].bytes();
    for (size_t i = 0; i < samples; ++i)
      grid.put(i, std::span(components[c]).subspan(i * bytes, bytes));
    STOKER_ASSIGN_OR_RETURN(summary.png, grid.png());
  }
  return summary;
}

}  // namespace stoker::app
