#include "shared/dataset/picture_input.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "shared/dataset/stage_time.h"
#include "shared/image/decoder.h"

namespace stoker::dataset {
namespace {

constexpr int64_t kMaxSide = 16384;

}  // namespace

Result<PictureInput> PictureInput::of(const SetRequest& set) {
  const auto& size = set.config.size;
  const auto fits = [](int64_t side) { return side >= 1 && side <= kMaxSide; };
  if (size.size() != 2 || !std::all_of(size.begin(), size.end(), fits)) {
    return set.wrong("size",
                     "must be [height, width], each between 1 and " + std::to_string(kMaxSide));
  }
  if (set.config.channels != 1 && set.config.channels != 3)
    return set.wrong("channels", "must be 3 (RGB) or 1 (grey)");
  STOKER_ASSIGN_OR_RETURN(const CropRule crop, CropRule::of(set));
  return PictureInput({.channels = static_cast<uint32_t>(set.config.channels),
                       .height = static_cast<uint32_t>(size[0]),
                       .width = static_cast<uint32_t>(size[1])},
                      crop);
}

TensorSpec PictureInput::spec() const {
  return {.name = "input",
          .dtype = DType::kU8,
          .shape = {shape_.channels, shape_.height, shape_.width}};
}

std::string PictureInput::to_text() const {
  return "size=" + std::to_string(shape_.height) + "x" + std::to_string(shape_.width) +
         " channels=" + std::to_string(shape_.channels) + crop_.to_text();
}

Status PictureInput::read(std::span<const std::byte> file, const DrawKey& draw,
                          std::span<std::byte> input) const {
  const InStage decoding(Stage::kDecode);
  thread_local image::Decoder decoder;
  if (crop_.takes_all()) return decoder.decode(file, shape_, input);
  return decoder.decode(file, shape_, input, [&](uint32_t height, uint32_t width) {
    return crop_.box(height, width, shape_, draw);
  });
}

std::string PictureInput::describe_draws(std::span<const std::byte> file,
                                         const DrawKey& draw) const {
  if (!crop_.draws()) return {};
  image::Decoder decoder;
  image::Box taken;
  std::vector<std::byte> input(shape_.bytes());
  const Status decoded = decoder.decode(file, shape_, input, [&](uint32_t height, uint32_t width) {
    return taken = crop_.box(height, width, shape_, draw);
  });
  if (!decoded.ok()) return "crop=unknown";
  std::ostringstream text;
  text << "crop=" << taken.left << ',' << taken.top << ',' << taken.width << 'x' << taken.height;
  return text.str();
}

}  // namespace stoker::dataset
