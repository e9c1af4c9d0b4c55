#include "shared/dataset/picture_input.h"

#include <sstream>
#include <vector>

#include "shared/dataset/stage_time.h"
#include "shared/image/decoder.h"

namespace stoker::dataset {
Result<PictureInput> PictureInput::of(const SetRequest& set) {
  STOKER_ASSIGN_OR_RETURN(const CropRule crop, CropRule::of(set));
  const bool is_gray = set.config.image_mode() == config::ImageMode::kGray;
  return PictureInput(
      {.channels = is_gray ? 1u : 3u, .height = crop.height(), .width = crop.width()}, crop);
}

TensorSpec PictureInput::spec() const {
  return {.name = "input",
          .dtype = DType::kU8,
          .shape = {shape_.channels, shape_.height, shape_.width}};
}

std::string PictureInput::to_text() const {
  return crop_.to_text() + " channels=" + std::to_string(shape_.channels);
}

Status PictureInput::read(std::span<const std::byte> file, const DrawKey& draw,
                          std::span<std::byte> input) const {
  const InStage decoding(Stage::kDecode);
  thread_local image::Decoder decoder;
  if (crop_.takes_all()) return decoder.decode(file, shape_, input);
  return decoder.decode(file, shape_, input, [&](uint32_t height, uint32_t width) {
    return crop_.box(height, width, draw);
  });
}

std::string PictureInput::describe_draws(std::span<const std::byte> file,
                                         const DrawKey& draw) const {
  if (!crop_.draws()) return {};
  image::Decoder decoder;
  image::Box taken;
  std::vector<std::byte> input(shape_.bytes());
  const Status decoded = decoder.decode(file, shape_, input, [&](uint32_t height, uint32_t width) {
    return taken = crop_.box(height, width, draw);
  });
  if (!decoded.ok()) return "crop=unknown";
  std::ostringstream text;
  text << "crop=" << taken.left << ',' << taken.top << ',' << taken.width << 'x' << taken.height;
  return text.str();
}

}  // namespace stoker::dataset
