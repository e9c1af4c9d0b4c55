#include "shared/config/layer_schema.h"

namespace stoker::config {
namespace {

constexpr double kManyPixels = 1e5;

std::vector<Field> fields_of_layer(LayerConfig& layer) {
  const std::string_view windows = "conv max_pool avg_pool";
  return {
      {.name = "kind",
       .target = &layer.kind,
       .words = "conv linear embedding lstm batch_norm layer_norm relu gelu tanh sigmoid max_pool "
                "avg_pool adaptive_avg_pool dropout flatten residual",
       .is_required = true},
      {.name = "channels",
       .target = &layer.channels,
       .min = 1,
       .max = 1e6,
       .kinds = "conv",
       .is_required = true},
      {.name = "kernel",
       .target = &layer.kernel,
       .min = 1,
       .max = kManyPixels,
       .kinds = windows,
       .is_required = true},
      {.name = "stride", .target = &layer.stride, .min = 0, .max = kManyPixels, .kinds = windows},
      {.name = "padding", .target = &layer.padding, .min = 0, .max = kManyPixels, .kinds = windows},
      {.name = "groups", .target = &layer.groups, .min = 1, .max = 1e6, .kinds = "conv"},
      {.name = "bias", .target = &layer.bias, .kinds = "conv linear"},
      {.name = "outputs", .target = &layer.outputs, .min = 0, .max = 1e7, .kinds = "linear"},
      {.name = "vocab",
       .target = &layer.vocab,
       .min = 1,
       .max = 1e7,
       .kinds = "embedding",
       .is_required = true},
      {.name = "width",
       .target = &layer.width,
       .min = 1,
       .max = 1e6,
       .kinds = "embedding lstm",
       .is_required = true},
      {.name = "size",
       .target = &layer.size,
       .min = 1,
       .max = kManyPixels,
       .kinds = "adaptive_avg_pool"},
      {.name = "part", .target = &layer.part, .min = 0, .max = 0.99, .kinds = "dropout"},
      {.name = "body", .target = layer_rows(layer.body), .kinds = "residual"},
      {.name = "shortcut", .target = layer_rows(layer.shortcut), .kinds = "residual"}};
}

}  // namespace

Rows layer_rows(std::vector<LayerConfig>& layers) {
  return rows<LayerConfig, fields_of_layer>(layers);
}

}  // namespace stoker::config
