#include "shared/config/image_model_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/config/foreign_json.h"
#include "shared/config/huggingface_config.h"

namespace stoker::config {
namespace {

namespace json = boost::json;

constexpr std::array<ResnetLayout, 5> kResnetLayouts{{{18, {2, 2, 2, 2}, false},
                                                      {34, {3, 4, 6, 3}, false},
                                                      {50, {3, 4, 6, 3}, true},
                                                      {101, {3, 4, 23, 3}, true},
                                                      {152, {3, 8, 36, 3}, true}}};
constexpr int64_t kStemWidth = 64, kExpansion = 4;

// timm's vits of these sizes, for images of 224 x 224.
struct TimmVit {
  std::string_view name;
  int64_t width, layers, heads, patch;
};
constexpr std::array<TimmVit, 11> kTimmVits{{{"vit_tiny_patch16", 192, 12, 3, 16},
                                             {"vit_small_patch32", 384, 12, 6, 32},
                                             {"vit_small_patch16", 384, 12, 6, 16},
                                             {"vit_small_patch8", 384, 12, 6, 8},
                                             {"vit_base_patch32", 768, 12, 12, 32},
                                             {"vit_base_patch16", 768, 12, 12, 16},
                                             {"vit_base_patch8", 768, 12, 12, 8},
                                             {"vit_large_patch32", 1024, 24, 16, 32},
                                             {"vit_large_patch16", 1024, 24, 16, 16},
                                             {"vit_large_patch14", 1024, 24, 16, 14},
                                             {"vit_huge_patch14", 1280, 32, 16, 14}}};
constexpr const TimmVit& kTimmVitOfAnySize = kTimmVits[5];
constexpr int64_t kTimmImageSize = 224;
constexpr std::array<int64_t, 3> kTimmImageSizes{kTimmImageSize, 384, 512};
constexpr double kTimmNormEps = 1e-6, kTimmMlpRatio = 4;
constexpr double kMaxImageSetting = 1e6, kMaxTimmImageSide = 1e5, kMaxTimmPatchSide = 1e4,
                 kMaxTimmBlocks = 1000;  // as in settings_model.cc

constexpr char kPreprocessorFile[] = "preprocessor_config.json";
constexpr size_t kMaxChannels = 8;

// ---- Reading

// A size, or twice the same: [16, 16].
int64_t square_of(std::string_view field, const json::value& value, double max) {
  if (!value.is_array()) return read_count(field, value, max);
  const json::array& sides = value.as_array();
  if (sides.size() != 2 || sides[0] != sides[1])
    reject_field(field, json_text(value) + " is not supported (only squares)");
  return read_count(field, sides[0], max);
}

std::vector<int64_t> sizes_of(const json::object& object, std::string_view field,
                              std::vector<int64_t> otherwise) {
  const json::value value = json_field(object, field);
  if (value.is_null()) return otherwise;
  if (!value.is_array()) reject_field(field, "must be a list");
  std::vector<int64_t> sizes;
  for (const json::value& size : value.as_array())
    sizes.push_back(read_count(field, size, kMaxImageSetting));
  return sizes;
}

// "vit_base_patch16_384": vit_base_patch16 and 384.
std::optional<VitConfig> find_timm_vit(std::string_view architecture) {
  for (const TimmVit& vit : kTimmVits)
    for (const int64_t size : kTimmImageSizes)
      if (architecture == std::string(vit.name) + '_' + std::to_string(size))
        return VitConfig{.preset = {},
                         .image_size = size,
                         .patch_size = vit.patch,
                         .num_layers = vit.layers,
                         .num_heads = vit.heads,
                         .hidden_dim = vit.width,
                         .mlp_dim = std::nullopt,
                         .layer_norm_eps = kTimmNormEps};
  return std::nullopt;
}

// Arguments of the function that makes the model, which replace those of its name.
VitConfig read_timm_vit(VitConfig vit, const json::object& object, const json::object& args) {
  require_only(object, "global_pool", "token");
  if (const json::value size = json_field(json_field(object, "pretrained_cfg").is_object()
                                              ? object.at("pretrained_cfg").as_object()
                                              : object,
                                          "input_size");
      size.is_array() && size.as_array().size() == 3)
    vit.image_size =
        square_of("input_size", json::array{size.at(1), size.at(2)}, kMaxTimmImageSide);
  double mlp_ratio = kTimmMlpRatio;
  for (const auto& [key, value] : args) {
    if (key == "img_size")
      vit.image_size = square_of(key, value, kMaxTimmImageSide);
    else if (key == "patch_size")
      vit.patch_size = square_of(key, value, kMaxTimmPatchSide);
    else if (key == "embed_dim")
      vit.hidden_dim = read_count(key, value, kMaxImageSetting);
    else if (key == "depth")
      vit.num_layers = read_count(key, value, kMaxTimmBlocks);
    else if (key == "num_heads")
      vit.num_heads = read_count(key, value, kMaxImageSetting);
    else if (key == "mlp_ratio")
      mlp_ratio = read_real(key, value, {0, kMaxImageSetting});
  }
  const double mlp_dim =
      std::min(static_cast<double>(vit.hidden_dim) * mlp_ratio, 2 * kMaxImageSetting);
  vit.mlp_dim = read_count("mlp_ratio", static_cast<int64_t>(mlp_dim), kMaxImageSetting);
  if (vit.hidden_dim % vit.num_heads != 0)
    reject_field("embed_dim", "is not a multiple of num_heads");
  return vit;
}

// Those that the weights show, or that must be the pooling of the model, and `supported`.
void check_model_args(const json::object& args, std::string_view pooling,
                      std::initializer_list<std::string_view> supported) {
  require_only(args, "global_pool", json::value(pooling));
  for (const auto& [key, value] : args)
    if (key != "num_classes" && key != "in_chans" && key != "global_pool" &&
        std::ranges::count(supported, std::string_view(key)) == 0)
      reject_field("model_args", "has '" + one_line(key, 80) + "', which is not supported");
}

std::vector<double> numbers_of(std::string_view field, const json::value& value) {
  json::array list;
  if (value.is_array())
    list = value.as_array();
  else
    list.push_back(value);
  if (list.size() > kMaxChannels)
    reject_field(field, "has " + std::to_string(list.size()) + " numbers, more than " +
                            std::to_string(kMaxChannels));
  std::vector<double> numbers;
  for (const json::value& each : list) {
    boost::system::error_code error;
    const double number = each.is_number() ? each.to_number<double>(error) : 0;
    if (!each.is_number() || error) reject_field(field, "must be numbers, got " + json_text(value));
    numbers.push_back(number);
  }
  return numbers;
}

std::optional<Normalize> normalization_of(const json::object& object, std::string_view mean,
                                          std::string_view std) {
  const json::value mean_value = json_field(object, mean), std_value = json_field(object, std);
  if (mean_value.is_null() || std_value.is_null()) return std::nullopt;
  Normalize normalize{numbers_of(mean, mean_value), numbers_of(std, std_value)};
  if (normalize.mean.empty() || normalize.std.empty()) return std::nullopt;
  return normalize;
}

std::optional<Normalize> timm_normalization(const json::object& object) {
  if (!object.contains("architecture")) return std::nullopt;
  const json::value nested = json_field(object, "pretrained_cfg");
  return normalization_of(nested.is_object() ? nested.as_object() : object, "mean", "std");
}

std::optional<Normalize> transformers_normalization(const json::object& object) {
  if (json_field(object, "do_normalize") == json::value(false)) return Normalize{{0}, {1}};
  return normalization_of(object, "image_mean", "image_std");
}

// ---- Writing

json::array to_list(const std::vector<double>& numbers, int64_t count) {
  json::array list;
  for (int64_t i = 0; i < count; ++i)
    list.emplace_back(numbers[std::min(static_cast<size_t>(i), numbers.size() - 1)]);
  return list;
}

// One number per channel, as both libraries need it.
std::pair<json::array, json::array> mean_and_std(const ImageFacts& facts) {
  const Normalize normalize = facts.normalize.value_or(Normalize{{0}, {1}});
  return {to_list(normalize.mean, facts.num_channels), to_list(normalize.std, facts.num_channels)};
}

// The image before the crop is resized to this side, by its shorter one or squeezed ("squash").
// timm computes floor(image_size / crop_pct).
double crop_pct_of(const ImageFacts& facts) {
  if (facts.crop.empty() || facts.resize.empty()) return 1;
  const auto crop = static_cast<double>(facts.crop.front()),
             resize = static_cast<double>(std::ranges::min(facts.resize));
  const double ratio = crop / resize;
  return std::floor(crop / ratio) < resize ? std::nextafter(ratio, 0.0) : ratio;
}

struct TimmModel {
  std::string architecture, global_pool = "avg", first_conv, classifier = "fc";
  int64_t num_features = 0, image_size = kTimmImageSize;
  bool is_of_one_size = false;
  json::object args = {};
};

// timm computes int(embed_dim * mlp_ratio).
double mlp_ratio_of(const VitConfig& vit) {
  const auto width = static_cast<double>(vit.hidden_dim);
  double ratio = static_cast<double>(vit.effective_mlp_dim()) / width;
  if (static_cast<int64_t>(width * ratio) < vit.effective_mlp_dim())
    ratio = std::nextafter(ratio, 2 * ratio);
  return ratio;
}

TimmModel timm_model(const VitConfig& vit) {
  const auto found = std::ranges::find_if(kTimmVits, [&](const TimmVit& timm) {
    return timm.width == vit.hidden_dim && timm.layers == vit.num_layers &&
           timm.heads == vit.num_heads && timm.patch == vit.patch_size &&
           vit.effective_mlp_dim() == 4 * timm.width;
  });
  const bool is_known = found != kTimmVits.end();
  TimmModel model{.architecture = std::string(is_known ? found->name : kTimmVitOfAnySize.name) +
                                  '_' + std::to_string(kTimmImageSize),
                  .global_pool = "token",
                  .first_conv = "patch_embed.proj",
                  .classifier = "head",
                  .num_features = vit.hidden_dim,
                  .image_size = vit.image_size.value_or(kTimmImageSize),
                  .is_of_one_size = true};
  if (model.image_size != kTimmImageSize) model.args["img_size"] = model.image_size;
  if (is_known) return model;
  model.args["patch_size"] = vit.patch_size;
  model.args["embed_dim"] = vit.hidden_dim;
  model.args["depth"] = vit.num_layers;
  model.args["num_heads"] = vit.num_heads;
  model.args["mlp_ratio"] = mlp_ratio_of(vit);
  return model;
}

Result<TimmModel> find_timm_model(const ModelVariant& arch) {
  if (const auto* const vit = std::get_if<VitConfig>(&arch)) {
    if (vit->layer_norm_eps == kTimmNormEps) return timm_model(*vit);
    return Status(StatusCode::kInvalidArgument, "timm's vit has model.layer_norm_eps 1e-06, not " +
                                                    setting_text(vit->layer_norm_eps) +
                                                    "; use --format huggingface");
  }
  if (const auto* const inception = std::get_if<InceptionV3Config>(&arch)) {
    TimmModel model{.architecture = "inception_v3",
                    .first_conv = "Conv2d_1a_3x3.conv",
                    .num_features = 2048,
                    .image_size = 299};
    if (inception->aux_logits) model.args["aux_logits"] = true;
    return model;
  }
  if (const auto* const resnet = std::get_if<ResnetConfig>(&arch))
    if (const ResnetLayout* const layout = find_resnet_layout(resnet->depth))
      return TimmModel{.architecture = "resnet" + std::to_string(resnet->depth),
                       .first_conv = "conv1",
                       .num_features = stage_widths(*layout).back()};
  return Status(StatusCode::kInvalidArgument,
                "model " + ModelConfig{.arch = arch}.name() +
                    " has no timm format (only resnet18, 34, 50, 101, 152, vit, inception_v3)");
}

}  // namespace

bool is_image_model(const ModelVariant& arch) {
  return std::holds_alternative<ResnetConfig>(arch) || std::holds_alternative<VitConfig>(arch) ||
         std::holds_alternative<InceptionV3Config>(arch);
}

std::vector<int64_t> stage_widths(const ResnetLayout& resnet) {
  std::vector<int64_t> widths;
  for (int64_t width = kStemWidth; widths.size() < 4; width *= 2)
    widths.push_back(resnet.has_bottlenecks ? kExpansion * width : width);
  return widths;
}

const ResnetLayout* find_resnet_layout(int depth) {
  const auto found = std::ranges::find(kResnetLayouts, depth, &ResnetLayout::depth);
  return found == kResnetLayouts.end() ? nullptr : &*found;
}

ResnetConfig read_resnet_config(const json::object& object) {
  require_only(object, "hidden_act", "relu");
  require_only(object, "embedding_size", kStemWidth);
  require_only(object, "downsample_in_first_stage", false);
  require_only(object, "downsample_in_bottleneck", false,
               ": a bottleneck has its stride in the 3 x 3 convolution");
  const json::value type = json_field(object, "layer_type");
  if (!type.is_null() && type != "basic" && type != "bottleneck")
    reject_field("layer_type", json_text(type) + " is not supported (only basic, bottleneck)");
  const bool has_bottlenecks = type != "basic";
  const std::vector<int64_t> depths = sizes_of(object, "depths", {3, 4, 6, 3}),
                             widths = sizes_of(object, "hidden_sizes", {256, 512, 1024, 2048});
  for (const ResnetLayout& resnet : kResnetLayouts) {
    if (!std::ranges::equal(resnet.blocks, depths) || resnet.has_bottlenecks != has_bottlenecks)
      continue;
    if (widths != stage_widths(resnet))
      reject_field("hidden_sizes", json_text(json_field(object, "hidden_sizes")) +
                                       " is not supported (only those of ResNet-" +
                                       std::to_string(resnet.depth) + ")");
    return {.depth = resnet.depth};
  }
  reject_field("depths", json_text(json_field(object, "depths")) + " of layer_type " +
                             (has_bottlenecks ? "bottleneck" : "basic") +
                             " is not supported (only those of ResNet-18, 34, 50, 101, 152)");
}

ModelVariant read_timm_config(const json::object& object) {
  const json::value name = json_field(object, "architecture");
  const std::string architecture = name.is_string() ? std::string(name.as_string()) : "";
  const json::value model_args = json_field(object, "model_args");
  const json::object args = model_args.is_object() ? model_args.as_object() : json::object();
  if (auto vit = find_timm_vit(architecture)) {
    check_model_args(args, "token",
                     {"img_size", "patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio"});
    return read_timm_vit(*std::move(vit), object, args);
  }
  const bool is_inception = architecture == "inception_v3";
  const auto resnet = std::ranges::find_if(kResnetLayouts, [&](const ResnetLayout& layout) {
    return architecture == "resnet" + std::to_string(layout.depth);
  });
  if (!is_inception && resnet == kResnetLayouts.end())
    reject_field(
        "architecture",
        json_text(name) +
            " is not supported (only resnet18, 34, 50, 101, 152, inception_v3 and "
            "vit_SIZE_patchN_224, _384, _512 of the sizes tiny, small, base, large, huge)");
  require_only(object, "global_pool", "avg");
  if (is_inception) {
    check_model_args(args, "avg", {"aux_logits"});
    return InceptionV3Config{};
  }
  check_model_args(args, "avg", {});
  return ResnetConfig{.depth = resnet->depth};
}

Result<std::string> format_timm_config(const ModelVariant& arch, const ImageFacts& facts) {
  STOKER_ASSIGN_OR_RETURN(const TimmModel model, find_timm_model(arch));
  const int64_t side = facts.image_size.value_or(model.image_size);
  const auto [mean, std] = mean_and_std(facts);
  json::object object{{"architecture", model.architecture},
                      {"num_classes", facts.num_classes},
                      {"num_features", model.num_features},
                      {"global_pool", model.global_pool}};
  if (!model.args.empty()) object["model_args"] = model.args;
  object["pretrained_cfg"] = {{"custom_load", false},
                              {"input_size", {facts.num_channels, side, side}},
                              {"fixed_input_size", model.is_of_one_size},
                              {"interpolation", to_string(facts.interpolation)},
                              {"crop_pct", crop_pct_of(facts)},
                              {"crop_mode", facts.resize.size() == 2 ? "squash" : "center"},
                              {"mean", mean},
                              {"std", std},
                              {"num_classes", facts.num_classes},
                              {"pool_size", nullptr},
                              {"first_conv", model.first_conv},
                              {"classifier", model.classifier}};
  return json::serialize(object);
}

// ViTImageProcessor cannot crop, and that of ResNet squeezes large images: CLIP's does all of it.
std::string format_preprocessor_config(const ImageFacts& facts) {
  constexpr int kRgb = 3;
  constexpr std::array kResamplings{0, 2, 3};  // of Pillow, in the order of Interpolation
  const auto [mean, std] = mean_and_std(facts);
  json::object object{{"image_processor_type", "CLIPImageProcessor"},
                      {"do_convert_rgb", facts.num_channels == kRgb},
                      {"do_resize", !facts.resize.empty()},
                      {"resample", kResamplings[static_cast<size_t>(facts.interpolation)]},
                      {"do_center_crop", !facts.crop.empty()},
                      {"do_rescale", true},
                      {"rescale_factor", 1.0 / 255},
                      {"do_normalize", true},
                      {"image_mean", mean},
                      {"image_std", std}};
  if (facts.resize.size() == 1)
    object["size"] = {{"shortest_edge", facts.resize.front()}};
  else if (!facts.resize.empty())
    object["size"] = {{"height", facts.resize.front()}, {"width", facts.resize.back()}};
  if (!facts.crop.empty())
    object["crop_size"] = {{"height", facts.crop.front()}, {"width", facts.crop.back()}};
  return json::serialize(object);
}

Result<std::optional<Normalize>> read_normalization(const std::string& folder) {
  struct stat info {};
  const std::string preprocessor = join_path(folder, kPreprocessorFile);
  const bool has_preprocessor = ::stat(preprocessor.c_str(), &info) == 0;
  const std::string file = has_preprocessor ? preprocessor : find_huggingface_config(folder);
  if (file.empty()) return std::optional<Normalize>();
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxHuggingFaceConfigBytes));
  auto read = read_foreign_json<std::optional<Normalize>>(
      text, file, has_preprocessor ? transformers_normalization : timm_normalization);
  if (read.ok() || !has_preprocessor) return read;
  return Status(read.status().code(), read.status().message() +
                                          "; or remove the file: its mean and std are only "
                                          "compared with normalize of data.train");
}

bool is_same_normalization(const Normalize* ours, const Normalize& theirs) {
  constexpr double kTolerance = 1e-3;
  const Normalize a = ours == nullptr ? Normalize{{0}, {1}} : *ours;
  const auto are_close = [&](const std::vector<double>& x, const std::vector<double>& y) {
    if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return false;
    for (size_t i = 0; i < std::max(x.size(), y.size()); ++i)
      if (std::abs(x[x.size() == 1 ? 0 : i] - y[y.size() == 1 ? 0 : i]) > kTolerance) return false;
    return true;
  };
  return are_close(a.mean, theirs.mean) && are_close(a.std, theirs.std);
}

}  // namespace stoker::config
