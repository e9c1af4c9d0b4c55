#include "evaluator/sample_image.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "shared/base/tensor_role.h"
#include "shared/data/transform/random_transforms.h"
#include "shared/image/png.h"

namespace stoker::evaluator {

const TensorSpec* find_image(const data::Dataset& data) {
  for (const TensorSpec& spec : data.spec())
    if (role_of(spec) == TensorRole::kInput && data::transform::is_image(spec)) return &spec;
  return nullptr;
}

Result<std::vector<uint8_t>> read_planes(const data::Dataset& data, uint64_t sample,
                                         const TensorSpec& image) {
  std::vector<std::vector<std::byte>> memory;
  for (const TensorSpec& spec : data.spec()) memory.emplace_back(spec.bytes());
  std::vector<std::span<std::byte>> spans(memory.begin(), memory.end());
  STOKER_RETURN_IF_ERROR(data.read(sample, data::RandomKey{.sample = sample}, spans));
  const auto at = static_cast<size_t>(&image - data.spec().data());
  std::vector<uint8_t> planes(memory[at].size());
  std::ranges::transform(memory[at], planes.begin(),
                         [](std::byte byte) { return static_cast<uint8_t>(byte); });
  return planes;
}

void draw_planes(Canvas& canvas, int left, int top, int side, const std::vector<uint8_t>& planes,
                 const std::vector<int64_t>& shape) {
  const int height = static_cast<int>(shape[1]), width = static_cast<int>(shape[2]);
  const double scale = static_cast<double>(side) / std::max(height, width);
  const int scaled_width = std::max(1, static_cast<int>(width * scale));
  const int scaled_height = std::max(1, static_cast<int>(height * scale));
  const auto plane = static_cast<size_t>(height * width);
  for (int y = 0; y < scaled_height; ++y) {
    for (int x = 0; x < scaled_width; ++x) {
      const size_t at =
          static_cast<size_t>(y * height / scaled_height) * static_cast<size_t>(width) +
          static_cast<size_t>(x * width / scaled_width);
      const auto value = [&](size_t channel) {
        return planes[(shape[0] == 3 ? channel * plane : 0) + at];
      };
      canvas.pixel(left + x, top + y, {value(0), value(1), value(2)});
    }
  }
}

Result<std::string> encode_image(const Canvas& canvas) {
  return image::encode_png(canvas.rgb(), static_cast<uint32_t>(canvas.width()),
                           static_cast<uint32_t>(canvas.height()));
}

std::string escape_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c == '|' || c == '\n' || c == '\r' || c == '`' ? ' ' : c;
  }
  return out;
}

}  // namespace stoker::evaluator
