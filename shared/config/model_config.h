// ModelConfig: the settings under model: what is trained, and what it begins with.
//
// Threads: values.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::config {

enum class ModelKind { kGpt, kMlp, kLenet, kResnet, kAlexnet, kVgg, kBlstm, kLstm };

// Tensors of model.init_from whose names match `from` get the name `to`: what the first * of `from`
// stands for takes the place of the first * of `to`, and so on.
struct NameRule {
  std::string from;
  std::string to;

  bool operator==(const NameRule&) const = default;
};

struct ModelConfig {
  ModelKind kind = ModelKind::kGpt;
  // gpt: blocks; resnet: depth 8 14 18 20 32 34 44 50 56 101 152, 18 when not given; vgg: depth 11 13
  // 16 19, 16 when not given; blstm lstm: 1 when not given
  int64_t layers = 6;
  bool batch_norm = false;  // vgg
  // gpt; alexnet vgg: of the two hidden fully connected layers, 4096 when not given; lstm;
  // blstm: of each direction
  int64_t width = 192;
  int64_t heads = 6;      // gpt
  int64_t context = 128;  // gpt lstm: tokens
  int64_t vocab = 256;    // gpt lstm: size of the vocabulary
  double dropout = 0.0;   // gpt mlp blstm lstm; alexnet vgg: 0.5 when not given
  // gpt: the backward pass computes the blocks again, and nothing of them is kept.
  bool recompute = false;
  std::string states = "last";           // blstm: what the output layer sees: last | mean
  bool tied = false;                     // lstm: the head is the embedding
  std::vector<int64_t> hidden = {1024};  // mlp: widths of the hidden layers
  int64_t inputs = 0;                    // mlp: 0 = elements of the data's input
  // mlp lenet resnet alexnet vgg blstm: 0 = classes (or target width) of the data
  int64_t outputs = 0;
  // A checkpoint directory, a .safetensors file, or one of torch.save, whose tensors are loaded first.
  std::string init_from;
  std::vector<NameRule> init_map;        // the first rule that matches a name renames it
  bool init_strict = true;               // tensors that only one side has are an error
  std::vector<std::string> init_ignore;  // globs of names that are neither loaded nor missed
  std::vector<std::string> freeze;       // globs of parameter names that are not trained

  // Whether it reads sequences of tokens and says what comes next.
  bool is_language_model() const { return kind == ModelKind::kGpt || kind == ModelKind::kLstm; }

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace stoker::config
