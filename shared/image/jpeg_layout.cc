#include "shared/image/jpeg_layout.h"

#include <cstdint>

namespace stoker::image {

bool has_standard_subsampling(const jpeg_decompress_struct& info) {
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& component = info.comp_info[i];
    const int most = i == 0 ? 2 : 1;
    if (component.h_samp_factor > most || component.v_samp_factor > most) return false;
  }
  return true;
}

JpegGrid jpeg_grid(const jpeg_decompress_struct& info) {
  const bool gray = info.num_components == 1;  // whose units are single blocks
  const auto unit = [gray](int factor) {
    return uint32_t{DCTSIZE} * (gray ? 1u : static_cast<uint32_t>(factor));
  };
  return {.height = info.image_height,
          .width = info.image_width,
          .unit_height = unit(info.max_v_samp_factor),
          .unit_width = unit(info.max_h_samp_factor),
          .interval = info.restart_interval};
}

}  // namespace stoker::image
