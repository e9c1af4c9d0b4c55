#include "shared/image/png_writer.h"

#include <spng.h>

#include <cstdlib>
#include <memory>

namespace stoker::image {
namespace {

struct FreeEncoder {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

struct FreeBytes {
  void operator()(void* bytes) const { std::free(bytes); }
};

Status encode_error(int error) {
  const StatusCode code = error == SPNG_EMEM ? StatusCode::kOutOfMemory : StatusCode::kInternal;
  return Status(code, std::string("write PNG: ") + spng_strerror(error));
}

}  // namespace

Result<std::string> encode_png(std::span<const uint8_t> rgb, uint32_t width, uint32_t height) {
  if (rgb.empty() || rgb.size() != size_t{3} * width * height) {
    return Status(StatusCode::kInvalidArgument,
                  "write PNG: " + std::to_string(rgb.size()) + " bytes are no image of " +
                      std::to_string(width) + "x" + std::to_string(height));
  }
  const std::unique_ptr<spng_ctx, FreeEncoder> context(spng_ctx_new(SPNG_CTX_ENCODER));
  if (!context) return encode_error(SPNG_EMEM);
  spng_set_option(context.get(), SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = width;
  header.height = height;
  header.bit_depth = 8;
  header.color_type = SPNG_COLOR_TYPE_TRUECOLOR;
  if (const int error = spng_set_ihdr(context.get(), &header); error != 0)
    return encode_error(error);
  if (const int error = spng_encode_image(context.get(), rgb.data(), rgb.size(), SPNG_FMT_PNG,
                                          SPNG_ENCODE_FINALIZE);
      error != 0)
    return encode_error(error);
  size_t bytes = 0;
  int error = 0;
  const std::unique_ptr<void, FreeBytes> file(spng_get_png_buffer(context.get(), &bytes, &error));
  if (!file) return encode_error(error);
  return std::string(static_cast<const char*>(file.get()), bytes);
}

}  // namespace stoker::image
