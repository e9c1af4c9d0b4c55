#include "daemon/train/layer_decay.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace stoker::train {
namespace {

constexpr auto kBlockPrefixes =
    std::to_array<std::string_view>({"blocks.", "encoder.layers.encoder_layer_"});
constexpr auto kEmbeddings = std::to_array<std::string_view>(
    {"tok.", "pos.", "type.", "embed_ln.", "class_token", "conv_proj.", "encoder.pos_embedding"});
constexpr auto kFinalNorms = std::to_array<std::string_view>({"ln.", "encoder.ln."});
constexpr auto kHeads = std::to_array<std::string_view>({"head.", "heads.", "pooler.", "fc."});

bool starts_with_any(std::string_view name, const auto& prefixes) {
  return std::ranges::any_of(prefixes, [&](auto prefix) { return name.starts_with(prefix); });
}

std::optional<int> block_of(std::string_view name) {
  for (const std::string_view prefix : kBlockPrefixes) {
    if (!name.starts_with(prefix)) continue;
    int block = 0;
    const char* const begin = name.data() + prefix.size();
    if (std::from_chars(begin, name.data() + name.size(), block).ec == std::errc()) return block;
  }
  return std::nullopt;
}

// From 0, in the order of the forward pass; nullopt: not known.
std::optional<int> layer_of(std::string_view name, int num_blocks) {
  if (const auto block = block_of(name)) return *block + 1;
  if (starts_with_any(name, kEmbeddings)) return 0;
  if (starts_with_any(name, kFinalNorms)) return num_blocks;
  if (starts_with_any(name, kHeads)) return num_blocks + 1;
  return std::nullopt;
}

}  // namespace

Result<LrScales> layer_lr_scales(const model::Model& model, std::optional<double> decay) {
  if (!decay) return LrScales();
  const auto parameters = model.named_parameters();
  int num_blocks = 0;
  for (const auto& parameter : parameters)
    if (const auto block = block_of(parameter.key())) num_blocks = std::max(num_blocks, *block + 1);
  std::map<std::string, int> layers;
  int last = 0;
  for (const auto& parameter : parameters) {
    const auto layer = layer_of(parameter.key(), num_blocks);
    if (!layer)
      return Status(StatusCode::kInvalidArgument,
                    "optimizer.layer_decay: parameter '" + parameter.key() +
                        "' belongs to no known layer; remove the key");
    layers[parameter.key()] = *layer;
    last = std::max(last, *layer);
  }
  LrScales scales;
  for (const auto& [name, layer] : layers) scales[name] = std::pow(*decay, last - layer);
  return scales;
}

}  // namespace stoker::train
