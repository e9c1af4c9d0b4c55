#include "ctl/parameter_shapes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "shared/config/image_model_config.h"

namespace stoker::ctl {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

void add_norm(Shapes& shapes, const std::string& name, int64_t width) {
  shapes[name + ".weight"] = shapes[name + ".bias"] = {width};
}
void add_linear(Shapes& shapes, const std::string& name, int64_t inputs, int64_t outputs) {
  shapes[name + ".weight"] = {outputs, inputs};
  shapes[name + ".bias"] = {outputs};
}

// The parameters of a model with these settings.
Shapes parameter_shapes(const config::Gpt2Config& gpt2) {
  const int64_t width = gpt2.embed_dim, mlp = gpt2.effective_mlp_dim(), vocab = *gpt2.vocab_size;
  Shapes shapes{{"tok.weight", {vocab, width}}, {"pos.weight", {gpt2.context_length, width}}};
  for (int64_t i = 0; i < gpt2.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    add_norm(shapes, block + "ln1", width);
    add_linear(shapes, block + "qkv", width, 3 * width);
    add_linear(shapes, block + "proj", width, width);
    add_norm(shapes, block + "ln2", width);
    add_linear(shapes, block + "up", width, mlp);
    add_linear(shapes, block + "down", mlp, width);
  }
  add_norm(shapes, "ln", width);
  if (!gpt2.tie_weights) shapes["head.weight"] = {vocab, width};
  return shapes;
}

Shapes parameter_shapes(const config::LlamaConfig& llama) {
  const int64_t width = llama.embed_dim, mlp = llama.effective_mlp_dim(),
                head = llama.effective_head_dim(), heads = llama.num_heads * head,
                groups = llama.effective_num_key_value_heads() * head, vocab = *llama.vocab_size;
  Shapes shapes{{"tok.weight", {vocab, width}}, {"ln.weight", {width}}};
  for (int64_t i = 0; i < llama.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const auto add_linear = [&](const char* name, int64_t inputs, int64_t outputs, bool bias) {
      shapes[block + name + ".weight"] = {outputs, inputs};
      if (bias) shapes[block + name + ".bias"] = {outputs};
    };
    shapes[block + "ln1.weight"] = shapes[block + "ln2.weight"] = {width};
    if (llama.qk_norm) shapes[block + "q_norm.weight"] = shapes[block + "k_norm.weight"] = {head};
    add_linear("q", width, heads, llama.qkv_bias);
    add_linear("k", width, groups, llama.qkv_bias);
    add_linear("v", width, groups, llama.qkv_bias);
    add_linear("proj", heads, width, llama.proj_bias);
    for (const char* const name : {"gate", "up"}) add_linear(name, width, mlp, llama.mlp_bias);
    add_linear("down", mlp, width, llama.mlp_bias);
  }
  if (!llama.tie_weights) shapes["head.weight"] = {vocab, width};
  return shapes;
}

// `outputs`: of the last layer.
Shapes parameter_shapes(const config::BertConfig& bert, int64_t outputs) {
  const int64_t width = bert.embed_dim, mlp = bert.effective_mlp_dim();
  Shapes shapes{{"tok.weight", {bert.vocab_size, width}},
                {"pos.weight", {bert.context_length, width}},
                {"type.weight", {bert.num_token_types, width}}};
  add_norm(shapes, "embed_ln", width);
  for (int64_t i = 0; i < bert.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    for (const char* const name : {"q", "k", "v", "proj"})
      add_linear(shapes, block + name, width, width);
    add_norm(shapes, block + "ln1", width);
    add_linear(shapes, block + "up", width, mlp);
    add_linear(shapes, block + "down", mlp, width);
    add_norm(shapes, block + "ln2", width);
  }
  if (bert.pooling == config::BertPooling::kPooler) add_linear(shapes, "pooler", width, width);
  add_linear(shapes, "fc", width, outputs);
  return shapes;
}

// `positions`: of the patches and the class token.
Shapes parameter_shapes(const config::VitConfig& vit, int64_t channels, int64_t positions,
                        int64_t outputs) {
  const int64_t width = vit.hidden_dim, mlp = vit.effective_mlp_dim();
  Shapes shapes{{"class_token", {1, 1, width}},
                {"encoder.pos_embedding", {1, positions, width}},
                {"conv_proj.weight", {width, channels, vit.patch_size, vit.patch_size}},
                {"conv_proj.bias", {width}}};
  for (int64_t i = 0; i < vit.num_layers; ++i) {
    const std::string block = "encoder.layers.encoder_layer_" + std::to_string(i) + ".";
    add_norm(shapes, block + "ln_1", width);
    shapes[block + "self_attention.in_proj_weight"] = {3 * width, width};
    shapes[block + "self_attention.in_proj_bias"] = {3 * width};
    add_linear(shapes, block + "self_attention.out_proj", width, width);
    add_norm(shapes, block + "ln_2", width);
    add_linear(shapes, block + "mlp.0", width, mlp);
    add_linear(shapes, block + "mlp.3", mlp, width);
  }
  add_norm(shapes, "encoder.ln", width);
  add_linear(shapes, "heads.head", width, outputs);
  return shapes;
}

// Whether these tensors can be those of the settings; the names are compared when they are written.
bool is_layout_of(const checkpoint::TensorRangeSource& file, const config::ModelVariant& arch) {
  const auto has = [&](const std::string& name) { return file.find(name) != nullptr; };
  if (const auto* const inception = std::get_if<config::InceptionV3Config>(&arch))
    return has("Mixed_7c.branch_pool.conv.weight") &&
           has("AuxLogits.fc.weight") == inception->aux_logits;
  const auto* const resnet = std::get_if<config::ResnetConfig>(&arch);
  const auto* const layout =
      resnet == nullptr ? nullptr : config::find_resnet_layout(resnet->depth);
  if (layout == nullptr || has("layer1.0.conv3.weight") != layout->has_bottlenecks) return false;
  int stage = 0;
  return std::ranges::all_of(layout->blocks, [&](int64_t blocks) {
    const std::string prefix = "layer" + std::to_string(++stage) + ".", conv = ".conv1.weight";
    return has(prefix + std::to_string(blocks - 1) + conv) &&
           !has(prefix + std::to_string(blocks) + conv);
  });
}

}  // namespace

int64_t num_labels(const checkpoint::TensorRangeSource& file) {
  for (const char* const name : {"fc.bias", "heads.head.bias"})
    if (const TensorSpec* const bias = file.find(name); bias != nullptr && bias->shape.size() == 1)
      return bias->shape.front();
  return 0;
}

ImageModelShape image_model_shape(const checkpoint::TensorRangeSource& file) {
  ImageModelShape shape{.outputs = num_labels(file)};
  for (const char* const name : {"conv1.weight", "conv_proj.weight", "Conv2d_1a_3x3.conv.weight"})
    if (const TensorSpec* const first = file.find(name);
        first != nullptr && first->shape.size() == 4)
      shape.channels = first->shape[1];
  const TensorSpec* const positions = file.find("encoder.pos_embedding");
  if (positions != nullptr && positions->shape.size() == 3) shape.positions = positions->shape[1];
  return shape;
}

Status check_parameter_shapes(const checkpoint::TensorRangeSource& file,
                              config::ModelVariant& arch) {
  const auto mismatch = [&](const std::string& is, const std::string& wanted) {
    return Status(StatusCode::kMismatch,
                  "the checkpoint has " + is + ", but the model of the run's config.yaml has " +
                      wanted + "; restore the settings that it was trained with");
  };
  const TensorSpec* const tokens = file.find("tok.weight");
  if (config::is_image_model(arch) && !std::holds_alternative<config::VitConfig>(arch))
    return is_layout_of(file, arch)
               ? Status()
               : mismatch("the tensors of another model", "those of model.name and its settings");
  const auto check_shapes = [&](Shapes wanted) -> Status {
    for (const TensorSpec& spec : file.tensors()) {
      const auto found = wanted.find(spec.name);
      if (found == wanted.end()) return mismatch(to_string(spec), "no such tensor");
      if (found->second != spec.shape)
        return mismatch(to_string(spec),
                        to_string(TensorSpec{spec.name, spec.dtype, found->second}));
      wanted.erase(found);
    }
    return wanted.empty() ? Status() : mismatch("no " + wanted.begin()->first, "one");
  };
  if (auto* const vit = std::get_if<config::VitConfig>(&arch)) {
    const ImageModelShape shape = image_model_shape(file);
    const auto patches = static_cast<double>(std::max<int64_t>(shape.positions - 1, 0));
    const auto side = static_cast<int64_t>(std::sqrt(patches));
    vit->image_size = side * vit->patch_size;
    return check_shapes(parameter_shapes(*vit, shape.channels, side * side + 1, shape.outputs));
  }
  if (tokens == nullptr || tokens->shape.size() != 2)
    return mismatch(tokens == nullptr ? "no tok.weight" : to_string(*tokens),
                    "a tok.weight of 2 dimensions");
  const auto check = [&](auto& model) -> Status {
    if (!model.vocab_size) model.vocab_size = tokens->shape.front();
    return check_shapes(parameter_shapes(model));
  };
  if (const auto* const bert = std::get_if<config::BertConfig>(&arch))
    return check_shapes(parameter_shapes(*bert, num_labels(file)));
  if (auto* const gpt2 = std::get_if<config::Gpt2Config>(&arch)) return check(*gpt2);
  if (auto* const llama = std::get_if<config::LlamaConfig>(&arch)) return check(*llama);
  return {};
}

}  // namespace stoker::ctl
