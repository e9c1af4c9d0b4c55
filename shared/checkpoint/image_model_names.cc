#include "shared/checkpoint/image_model_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "shared/base/glob.h"

namespace stoker::checkpoint {
namespace {

using Module = HuggingFaceNames::Module;

constexpr std::array<std::string_view, 3> kQkv{"query", "key", "value"};
constexpr std::string_view kFused = "{query,key,value}";

Module tensor_names(std::string_view name, std::string_view theirs) {
  return {.name = name, .theirs = theirs, .is_tensor = true};
}

const std::vector<Module>& timm_vit() {
  static const std::vector<Module> kModules{
      tensor_names("class_token", "cls_token"),
      tensor_names("encoder.pos_embedding", "pos_embed"),
      {"conv_proj", "patch_embed.proj"},
      {"encoder.layers.encoder_layer_*.ln_1", "blocks.*.norm1"},
      tensor_names("encoder.layers.encoder_layer_*.self_attention.in_proj_weight",
                   "blocks.*.attn.qkv.weight"),
      tensor_names("encoder.layers.encoder_layer_*.self_attention.in_proj_bias",
                   "blocks.*.attn.qkv.bias"),
      {"encoder.layers.encoder_layer_*.self_attention.out_proj", "blocks.*.attn.proj"},
      {"encoder.layers.encoder_layer_*.ln_2", "blocks.*.norm2"},
      {"encoder.layers.encoder_layer_*.mlp.0", "blocks.*.mlp.fc1"},
      {"encoder.layers.encoder_layer_*.mlp.3", "blocks.*.mlp.fc2"},
      {"encoder.ln", "norm"},
      {"heads.head", "head"}};
  return kModules;
}

// A pattern that others include follows them: * matches dots, too.
const std::vector<Module>& transformers_vit() {
  static const std::vector<Module> kModules{
      tensor_names("class_token", "embeddings.cls_token"),
      tensor_names("encoder.pos_embedding", "embeddings.position_embeddings"),
      {"conv_proj", "embeddings.patch_embeddings.projection"},
      {"encoder.layers.encoder_layer_*.ln_1", "encoder.layer.*.layernorm_before"},
      tensor_names("encoder.layers.encoder_layer_*.self_attention.in_proj_weight",
                   "encoder.layer.*.attention.attention.{query,key,value}.weight"),
      tensor_names("encoder.layers.encoder_layer_*.self_attention.in_proj_bias",
                   "encoder.layer.*.attention.attention.{query,key,value}.bias"),
      {"encoder.layers.encoder_layer_*.self_attention.query",
       "encoder.layer.*.attention.attention.query"},
      {"encoder.layers.encoder_layer_*.self_attention.key",
       "encoder.layer.*.attention.attention.key"},
      {"encoder.layers.encoder_layer_*.self_attention.value",
       "encoder.layer.*.attention.attention.value"},
      {"encoder.layers.encoder_layer_*.self_attention.out_proj",
       "encoder.layer.*.attention.output.dense"},
      {"encoder.layers.encoder_layer_*.ln_2", "encoder.layer.*.layernorm_after"},
      {"encoder.layers.encoder_layer_*.mlp.0", "encoder.layer.*.intermediate.dense"},
      {"encoder.layers.encoder_layer_*.mlp.3", "encoder.layer.*.output.dense"},
      {"encoder.ln", "layernorm"},
      {.name = "heads.head", .theirs = "classifier", .has_prefix = false}};
  return kModules;
}
// Of a ViTModel, and of masked image modeling.
constexpr std::array<std::string_view, 3> kVitIgnored{"pooler.*", "embeddings.mask_token",
                                                      "decoder.*"};

// torchvision counts stages and layers from 1, transformers from 0.
std::vector<std::pair<std::string, std::string>> transformers_resnet_names() {
  constexpr int kStages = 4, kLayers = 3;
  std::vector<std::pair<std::string, std::string>> names{
      {"conv1", "embedder.embedder.convolution"}, {"bn1", "embedder.embedder.normalization"}};
  for (int stage = 0; stage < kStages; ++stage) {
    const std::string ours = "layer" + std::to_string(stage + 1) + ".*.",
                      theirs = "encoder.stages." + std::to_string(stage) + ".layers.*.";
    names.emplace_back(ours + "downsample.0", theirs + "shortcut.convolution");
    names.emplace_back(ours + "downsample.1", theirs + "shortcut.normalization");
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string number = std::to_string(layer + 1),
                        layer_name = theirs + "layer." + std::to_string(layer);
      names.emplace_back(ours + "conv" + number, layer_name + ".convolution");
      names.emplace_back(ours + "bn" + number, layer_name + ".normalization");
    }
  }
  return names;
}

const std::vector<Module>& transformers_resnet() {
  static const auto kNames = transformers_resnet_names();
  static const std::vector<Module> kModules = [] {
    std::vector<Module> modules;
    for (const auto& [ours, theirs] : kNames) modules.push_back({ours, theirs});
    modules.push_back({.name = "fc", .theirs = "classifier.1", .has_prefix = false});
    return modules;
  }();
  return kModules;
}

const std::vector<Module>& older_torchvision_vit() {
  static const std::vector<Module> kModules{
      {"encoder.layers.encoder_layer_*.mlp.0", "encoder.layers.encoder_layer_*.mlp.linear_1"},
      {"encoder.layers.encoder_layer_*.mlp.3", "encoder.layers.encoder_layer_*.mlp.linear_2"}};
  return kModules;
}

const HuggingFaceNames* vit_names(ImageLibrary library) {
  static const HuggingFaceNames kTimm("", timm_vit(), {});
  static const HuggingFaceNames kTransformers("vit.", transformers_vit(), kVitIgnored);
  static const HuggingFaceNames kOlder("", older_torchvision_vit(), {});
  switch (library) {
    case ImageLibrary::kTorchvision:
      return nullptr;
    case ImageLibrary::kTorchvisionBefore013:
      return &kOlder;
    case ImageLibrary::kTimm:
      return &kTimm;
    case ImageLibrary::kTransformers:
      break;
  }
  return &kTransformers;
}

// ---- Queries, keys and values

// With `with` in place of the last `part`; nullopt: it has no such part.
std::optional<std::string> replace_last(const std::string& name, std::string_view part,
                                        std::string_view with) {
  const size_t at = name.rfind(part);
  if (at == std::string::npos) return std::nullopt;
  return std::string(name).replace(at, part.size(), with);
}

// "….attention.attention.{query,key,value}.bias" of the query's name.
std::optional<std::string> fused_of_query(const std::string& name) {
  return replace_last(name, ".attention.attention.query.",
                      ".attention.attention." + std::string(kFused) + ".");
}

// The names of the three tensors of a fused one; empty: it is not fused.
std::vector<std::string> parts_of_fused(const std::string& name) {
  std::vector<std::string> parts;
  for (const std::string_view part : kQkv)
    if (auto found = replace_last(name, kFused, part)) parts.push_back(*std::move(found));
  return parts;
}

struct FusedPart {
  std::string name;  // of the fused tensor
  size_t index = 0;  // of kQkv
};
// Of "….self_attention.key.weight"; nullopt: another tensor.
std::optional<FusedPart> fused_of_part(const std::string& name) {
  for (size_t i = 0; i < kQkv.size(); ++i)
    if (auto fused = replace_last(name, ".self_attention." + std::string(kQkv[i]) + ".",
                                  ".self_attention.in_proj_"))
      return FusedPart{*std::move(fused), i};
  return std::nullopt;
}

}  // namespace

const HuggingFaceNames* find_image_names(std::string_view model_name, ImageLibrary library) {
  static const HuggingFaceNames kResnet("resnet.", transformers_resnet(), {});
  if (model_name == "vit" || model_name.starts_with("vit_")) return vit_names(library);
  if (model_name.starts_with("resnet") && library == ImageLibrary::kTransformers) return &kResnet;
  return nullptr;
}

ImageLibrary detect_image_library(const std::vector<std::string>& names) {
  const auto has_any = [&](std::string_view pattern) {
    const NameGlob glob(pattern);
    return std::ranges::any_of(names, [&](const std::string& name) { return glob.matches(name); });
  };
  if (has_any("*embeddings.cls_token") || has_any("*embedder.embedder.convolution.weight"))
    return ImageLibrary::kTransformers;
  // Those without a prefix decide: other parts in the file can be of other models ("decoder.pos_embed").
  for (const std::string prefix : {"", "*."}) {
    if (has_any(prefix + "cls_token") || has_any(prefix + "pos_embed")) return ImageLibrary::kTimm;
    if (has_any(prefix + "encoder.layers.encoder_layer_*.mlp.linear_1.weight"))
      return ImageLibrary::kTorchvisionBefore013;
  }
  return ImageLibrary::kTorchvision;
}

FusedQkv::FusedQkv(std::unique_ptr<TensorSource> file) : file_(std::move(file)) {
  std::unordered_set<std::string> fused;  // the parts of those that were fused
  for (const TensorSpec& query : file_->tensors()) {
    const auto name = fused_of_query(query.name);
    if (!name || query.shape.empty()) continue;
    const std::vector<std::string> parts = parts_of_fused(*name);
    const bool are_alike = std::ranges::all_of(parts, [&](const std::string& part) {
      const TensorSpec* const spec = file_->find(part);
      return spec != nullptr && spec->shape == query.shape && spec->dtype == query.dtype;
    });
    int64_t rows = 0;  // of an empty tensor, the file can have any number
    if (!are_alike || file_->find(*name) != nullptr ||
        __builtin_mul_overflow(query.shape.front(), static_cast<int64_t>(kQkv.size()), &rows))
      continue;
    TensorSpec& spec = tensors_.emplace_back(query);
    spec.name = *name;
    spec.shape.front() = rows;
    fused.insert(parts.begin(), parts.end());
  }
  for (const TensorSpec& spec : file_->tensors())
    if (!fused.contains(spec.name)) tensors_.push_back(spec);
  for (const TensorSpec& spec : tensors_) index_.emplace(spec.name, index_.size());
}

const TensorSpec* FusedQkv::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status FusedQkv::read(const std::string& name, std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec == nullptr) return Status(StatusCode::kNotFound, name + ": is not in the file");
  const std::vector<std::string> parts = parts_of_fused(name);
  if (parts.empty()) return file_->read(name, out);
  if (out.size() != spec->bytes())
    return Status(StatusCode::kInvalidArgument,
                  name + ": has " + std::to_string(spec->bytes()) + " bytes");
  const size_t part_bytes = out.size() / parts.size();
  for (size_t i = 0; i < parts.size(); ++i)
    STOKER_RETURN_IF_ERROR(file_->read(parts[i], out.subspan(i * part_bytes, part_bytes)));
  return {};
}

SplitQkv::SplitQkv(std::unique_ptr<TensorRangeSource> file) : file_(std::move(file)) {
  constexpr auto kParts = static_cast<int64_t>(kQkv.size());
  for (const TensorSpec& spec : file_->tensors()) {
    const bool is_fused = spec.name.find(".self_attention.in_proj_") != std::string::npos &&
                          !spec.shape.empty() && spec.shape.front() % kParts == 0;
    if (!is_fused) {
      tensors_.push_back(spec);
      continue;
    }
    for (const std::string_view part : kQkv) {
      TensorSpec& added = tensors_.emplace_back(spec);
      added.name = *replace_last(spec.name, "in_proj_", std::string(part) + ".");
      added.shape.front() /= kParts;
    }
  }
}

const TensorSpec* SplitQkv::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorSpec::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Status SplitQkv::read(const std::string& name, std::span<std::byte> out) const {
  return read_part(name, 0, out);
}

Status SplitQkv::read_part(const std::string& name, uint64_t offset,
                           std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec == nullptr) return Status(StatusCode::kNotFound, name + ": is not in the file");
  if (offset + out.size() > spec->bytes())
    return Status(StatusCode::kInvalidArgument, name + ": the range is outside of the tensor");
  const auto fused = fused_of_part(name);
  if (!fused) return file_->read_part(name, offset, out);
  return file_->read_part(fused->name, fused->index * spec->bytes() + offset, out);
}

}  // namespace stoker::checkpoint
