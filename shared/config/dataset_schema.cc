#include <array>
#include <string_view>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kDatasetKinds =
    std::to_array({"text"sv, "tokens"sv, "images"sv, "idx"sv, "cifar"sv, "synthetic"sv});

// Large enough for every use, small enough that no product of two overflows.
constexpr double kMostSamples = 1e15;

}  // namespace

Section dataset_section(const std::string& name, DatasetConfig& set) {
  const bool trains = name == "train";
  const std::string_view sequences = "text tokens";
  const std::string_view synthetic = "synthetic";
  const std::string_view encoded_pictures = "images";    // through PictureInput
  const std::string_view pictures = "images idx cifar";  // U8 [channels, height, width]
  return {"data." + name,
          {{.name = "kind", .target = choice(set.kind, kDatasetKinds), .decides = trains},
           {.name = "path", .target = &set.path, .kinds = "text tokens images idx cifar"},
           {.name = "glob", .target = &set.glob, .kinds = "text images", .decides = trains},
           {.name = "split", .target = &set.split, .min = 0, .max = 1, .decides = trains},
           {.name = "context",
            .target = &set.context,
            .min = 0,
            .max = 1e6,
            .kinds = sequences,
            .decides = trains},
           {.name = "dtype",
            .target = &set.dtype,
            .kinds = "tokens",
            .words = "uint16 uint32",
            .decides = trains},
           {.name = "labels", .target = &set.labels, .kinds = "idx"},
           {.name = "size",
            .target = &set.size,
            .min = 1,
            .max = 16384,
            .kinds = encoded_pictures,
            .decides = trains},
           {.name = "channels",
            .target = &set.channels,
            .min = 1,
            .max = 3,
            .kinds = encoded_pictures,
            .decides = trains},
           {.name = "fit",
            .target = &set.fit,
            .kinds = encoded_pictures,
            .words = "stretch center_crop random_crop",
            .decides = trains},
           {.name = "crop_part",
            .target = &set.crop_part,
            .min = 0,
            .max = 1,
            .above_min = true,
            .kinds = encoded_pictures,
            .decides = trains},
           {.name = "crop_area",
            .target = &set.crop_area,
            .min = 0,
            .max = 1,
            .above_min = true,
            .kinds = encoded_pictures,
            .decides = trains},
           {.name = "crop_ratio",
            .target = &set.crop_ratio,
            .min = 0,
            .max = 1000,
            .above_min = true,
            .kinds = encoded_pictures,
            .decides = trains},
           {.name = "pad",
            .target = &set.pad,
            .min = 0,
            .max = 16383,
            .kinds = pictures,
            .decides = trains},
           {.name = "flip",
            .target = &set.flip,
            .min = 0,
            .max = 1,
            .kinds = pictures,
            .decides = trains},
           {.name = "jitter",
            .target = &set.jitter,
            .min = 0,
            .max = 100,
            .kinds = pictures,
            .decides = trains},
           {.name = "classes",
            .target = &set.classes,
            .min = 0,
            .max = 1e6,
            .kinds = "cifar synthetic",
            .decides = trains},
           {.name = "samples",
            .target = &set.samples,
            .min = 0,
            .max = kMostSamples,
            .kinds = synthetic,
            .decides = trains},
           {.name = "features",
            .target = &set.features,
            .min = 1,
            .max = 1e9,
            .kinds = synthetic,
            .decides = trains},
           {.name = "targets",
            .target = &set.targets,
            .min = 1,
            .max = 1e6,
            .kinds = synthetic,
            .decides = trains},
           {.name = "noise",
            .target = &set.noise,
            .min = 0,
            .max = 1e6,
            .kinds = synthetic,
            .decides = trains}}};
}

}  // namespace stoker::config
