// The settings of image models (resnet…, vit…, inception_v3), and how their images were prepared, in the folders of transformers
// (config.json with model_type, preprocessor_config.json) and timm (config.json with architecture).
//
// Threads:  functions of their arguments.
// Blocking: read_normalization() reads a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/config/model_config.h"

namespace boost::json {
class object;
}  // namespace boost::json

namespace stoker::config {

bool is_image_model(const ModelVariant& arch);

// Of model_type resnet. Throws FieldError.
ResnetConfig read_resnet_config(const boost::json::object& object);
// Of a timm folder. Throws FieldError.
ModelVariant read_timm_config(const boost::json::object& object);

// The blocks per stage of a ResNet for large images; null: of another depth.
struct ResnetLayout {
  int depth;
  int64_t blocks[4];
  bool has_bottlenecks;
};
const ResnetLayout* find_resnet_layout(int depth);
// The channels that each stage ends with.
std::vector<int64_t> stage_widths(const ResnetLayout& resnet);

// What the weights do not show.
struct ImageFacts {
  int64_t num_classes = 0;  // outputs
  int64_t num_channels = 3;
  std::optional<int64_t> image_size = std::nullopt;   // of the model's input; null: unknown
  std::vector<int64_t> resize = {};                   // as Resize::size; empty: none
  std::vector<int64_t> crop = {};                     // as CenterCrop::size, after it; empty: none
  std::optional<Normalize> normalize = std::nullopt;  // null: inputs in [0, 1]
  Interpolation interpolation = Interpolation::kBilinear;
};

// The text of config.json of a timm folder. kInvalidArgument: timm has no such model.
Result<std::string> format_timm_config(const ModelVariant& arch, const ImageFacts& facts);
// The text of preprocessor_config.json.
std::string format_preprocessor_config(const ImageFacts& facts);

// The mean and std in preprocessor_config.json of a folder, or in config.json of timm; nullopt:
// neither has them. kInvalidArgument (foreign_json.h), kIoError.
Result<std::optional<Normalize>> read_normalization(const std::string& folder);
// `ours`: null for inputs in [0, 1]. A single number counts for all channels.
bool is_same_normalization(const Normalize* ours, const Normalize& theirs);

}  // namespace stoker::config
