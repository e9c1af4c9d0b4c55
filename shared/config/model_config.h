// ModelConfig: the settings under model: what is trained, and what it begins with.
//
// Threads: values.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/config/layer_config.h"

namespace stoker::config {

enum class ModelKind {
  kGpt,
  kMlp,
  kLenet,
  kResnet,
  kAlexnet,
  kVgg,
  kVit,
  kInceptionV3,
  kBlstm,
  kLstm,
  kLayers,
  kPlugin,
  kTorchscript
};

// Tensors of model.init_from whose names match `from` get the name `to`: what the first * of `from`
// stands for takes the place of the first * of `to`, and so on.
struct NameRule {
  std::string from;
  std::string to;

  bool operator==(const NameRule&) const = default;
};

struct ModelConfig {
  ModelKind kind = ModelKind::kGpt;
  // gpt: blocks; vit: blocks, 12 when not given; resnet: depth 8 14 18 20 32 34 44 50 56 101 152, 18
  // when not given; vgg: depth 11 13 16 19, 16 when not given; blstm lstm: 1 when not given
  int64_t layers = 6;
  bool batch_norm = false;  // vgg
  bool aux_logits = true;   // inception_v3: with its auxiliary head
  // gpt; vit: 768 when not given; alexnet vgg: of the two hidden fully connected layers, 4096 when
  // not given; lstm; blstm: of each direction
  int64_t width = 192;
  int64_t heads = 6;        // gpt; vit: 12 when not given
  int64_t context = 128;    // gpt lstm: tokens
  int64_t vocab = 256;      // gpt lstm; blstm over tokens: size of the vocabulary
  double dropout = 0.0;     // gpt mlp vit blstm lstm; alexnet vgg inception_v3: 0.5 when not given
  int64_t mlp_width = 0;    // vit: of the blocks' fully connected layers; 0 = 4 * width
  int64_t patch_size = 16;  // vit: pixels, the side of a patch
  int64_t image_size = 0;   // vit: pixels, the side of a picture; 0 = the data's
  // gpt: the backward pass computes the blocks again, and nothing of them is kept.
  bool recompute = false;
  // blstm: what the output layer sees: last | mean | each, which is the default for tagging, ctc
  std::string states = "last";
  int64_t embedding = 0;                 // blstm over tokens: size of a token's vector; 0 = width
  bool tied = false;                     // lstm: the head is the embedding
  std::vector<int64_t> hidden = {1024};  // mlp: widths of the hidden layers
  int64_t inputs = 0;                    // mlp: 0 = elements of the data's input
  // mlp lenet resnet alexnet vgg vit inception_v3 blstm layers plugin torchscript: 0 = classes (or
  // target width) of the data
  int64_t outputs = 0;
  std::vector<LayerConfig> stack;  // layers: one after another
  std::string path;                // plugin torchscript: the file with its code
  std::string parameters = "{}";  // plugin: what its factory asks for, as the text of a JSON object
  // A checkpoint directory, a .safetensors file, or one of torch.save, whose tensors are loaded first.
  std::string init_from;
  std::vector<NameRule> init_map;        // the first rule that matches a name renames it
  bool init_strict = true;               // tensors that only one side has are an error
  std::vector<std::string> init_ignore;  // globs of names that are neither loaded nor missed
  std::vector<std::string> freeze;       // globs of parameter names that are not trained

  // Whether it reads sequences of tokens and says what comes next.
  bool reads_tokens() const {
    return kind == ModelKind::kGpt || kind == ModelKind::kLstm ||
           (kind == ModelKind::kLayers && !stack.empty() && stack.front().kind == "embedding");
  }

  // Whether its code is in a file of the user's: what it reads is only known with the data.
  bool is_from_file() const {
    return kind == ModelKind::kPlugin || kind == ModelKind::kTorchscript;
  }

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace stoker::config
