#include "bench/training_setups.h"

#include <utility>
#include <variant>

#include <boost/json.hpp>

namespace stoker::bench {
namespace {

constexpr int64_t kVocabulary = 4096;  // of gpt2, llama, bert and captioner
const config::Normalize kToPlusMinusOne{.mean = {0.5}, .std = {0.5}};

std::vector<TensorSpec> labeled(DType dtype, std::vector<int64_t> shape) {
  return {{.name = "input", .dtype = dtype, .shape = std::move(shape)},
          {.name = "label", .dtype = DType::kI64, .shape = {}}};
}

TrainingSetup regression(std::string name, int64_t inputs, int64_t width, uint64_t batch) {
  return {.name = std::move(name),
          .model = {.arch = config::MlpConfig{.hidden_sizes = {width}}},
          .task = {config::RegressionTask{}},
          .sample = {{.name = "input", .dtype = DType::kF32, .shape = {inputs}},
                     {.name = "target", .dtype = DType::kF32, .shape = {1}}},
          .batch = batch};
}

TrainingSetup gpt(bool tiny) {
  config::GptConfig model;
  if (tiny) {
    model.num_layers = 2;
    model.embed_dim = 32;
    model.num_heads = 2;
    model.context_length = 16;
  }
  return {.name = "gpt",
          .model = {.arch = model},
          .task = {config::LanguageModelingTask{}},
          .sample = {{.name = "tokens", .dtype = DType::kU8, .shape = {model.context_length + 1}}},
          .classes = 256,
          .batch = tiny ? 2u : 16u};
}

TrainingSetup language_model(std::string name, config::ModelVariant arch, int64_t context,
                             bool tiny) {
  return {.name = std::move(name),
          .model = {.arch = std::move(arch)},
          .task = {config::LanguageModelingTask{}},
          .sample = {{.name = "tokens", .dtype = DType::kU16, .shape = {context + 1}}},
          .classes = kVocabulary,
          .batch = tiny ? 2u : 8u};
}

// Smaller than published ones, so that a step on the CPU takes less than a second.
TrainingSetup gpt2(bool tiny) {
  config::Gpt2Config model{.num_layers = tiny ? 2 : 4,
                           .num_heads = tiny ? 2 : 4,
                           .embed_dim = tiny ? 32 : 256,
                           .context_length = tiny ? 16 : 128,
                           .vocab_size = kVocabulary,
                           .dropout = 0};
  return language_model("gpt2", model, model.context_length, tiny);
}

TrainingSetup llama(bool tiny) {
  config::LlamaConfig model{.num_layers = tiny ? 2 : 4,
                            .num_heads = tiny ? 2 : 4,
                            .num_key_value_heads = tiny ? 1 : 2,
                            .embed_dim = tiny ? 32 : 256,
                            .context_length = tiny ? 16 : 128,
                            .vocab_size = kVocabulary};
  return language_model("llama", model, model.context_length, tiny);
}

TrainingSetup bert(bool tiny) {
  const config::BertConfig model{.num_layers = tiny ? 2 : 4,
                                 .num_heads = tiny ? 2 : 4,
                                 .embed_dim = tiny ? 32 : 256,
                                 .context_length = tiny ? 16 : 128,
                                 .vocab_size = kVocabulary,
                                 .dropout = 0,
                                 .attention_dropout = 0};
  return {.name = "bert",
          .model = {.arch = model},
          .task = {config::ClassificationTask{}},
          .sample = {{.name = "tokens", .dtype = DType::kU16, .shape = {model.context_length}},
                     {.name = "label", .dtype = DType::kI64, .shape = {}}},
          .classes = 10,
          .batch = tiny ? 2u : 8u};
}

TrainingSetup image_classifier(std::string name, config::ModelVariant arch, int64_t side,
                               uint64_t batch) {
  return {.name = std::move(name),
          .model = {.arch = std::move(arch)},
          .task = {config::ClassificationTask{}},
          .normalize = kToPlusMinusOne,
          .sample = labeled(DType::kU8, {3, side, side}),
          .classes = 10,
          .batch = batch};
}

TrainingSetup vit(bool tiny) {
  const config::VitConfig model{.patch_size = 8,
                                .num_layers = tiny ? 2 : 4,
                                .num_heads = tiny ? 2 : 4,
                                .hidden_dim = tiny ? 32 : 256};
  return image_classifier("vit", model, tiny ? 16 : 64, tiny ? 2 : 32);
}

// Without the auxiliary head, which needs images of 299 pixels. 75 pixels are the fewest that the
// model accepts, 107 the fewest with which its last feature map is 2 x 2.
TrainingSetup inception_v3(bool tiny) {
  const config::InceptionV3Config model{.aux_logits = false, .dropout = 0};
  return image_classifier("inception_v3", model, tiny ? 75 : 107, tiny ? 2 : 8);
}

// The encoder is trained, too.
TrainingSetup captioner(std::string name, config::CaptionDecoder decoder, bool tiny) {
  const bool is_lstm = decoder == config::CaptionDecoder::kLstm;
  const config::CaptionerConfig model{
      .encoder = {.name = tiny ? config::ImageEncoder::kResnet8 : config::ImageEncoder::kResnet18},
      .decoder = {.name = decoder,
                  .hidden_size = tiny ? 32 : 512,
                  .num_layers = is_lstm ? 1 : 2,
                  .num_heads = tiny ? 2 : 8,
                  .dropout = 0},
      .max_length = 20};
  const int64_t side = tiny ? 16 : 96, captions = tiny ? 1 : 5;
  return {
      .name = std::move(name),
      .model = {.arch = model},
      .task = {config::CaptioningTask{}},
      .normalize = kToPlusMinusOne,
      .sample = {{.name = "input", .dtype = DType::kU8, .shape = {3, side, side}},
                 {.name = "labels", .dtype = DType::kI64, .shape = {captions, model.max_length}},
                 {.name = "references", .dtype = DType::kU8, .shape = {8}}},
      .classes = kVocabulary,
      .batch = tiny ? 2u : 8u};
}

}  // namespace

std::vector<TrainingSetup> training_setups(bool tiny) {
  return {tiny ? regression("mlp", 16, 16, 4) : regression("mlp", 1024, 1024, 128),
          regression("mlp-small", 64, 64, 32),  // small enough that overhead dominates
          gpt(tiny),
          gpt2(tiny),
          llama(tiny),
          bert(tiny),
          captioner("captioner-lstm", config::CaptionDecoder::kLstm, tiny),
          captioner("captioner-transformer", config::CaptionDecoder::kTransformer, tiny),
          vit(tiny),
          inception_v3(tiny),
          {.name = "lenet",
           .model = {.arch = config::Lenet5Config{}},
           .task = {config::ClassificationTask{}},
           .normalize = kToPlusMinusOne,
           .sample = labeled(DType::kU8, {1, 28, 28}),
           .classes = 10,
           .batch = tiny ? 2u : 64u},
          image_classifier("resnet14", config::ResnetConfig{.depth = 14}, 32, tiny ? 2 : 128),
          {.name = "blstm",
           .model = {.arch = config::BlstmConfig{.hidden_size = tiny ? 8 : 128}},
           .task = {config::ClassificationTask{}},
           .sample = tiny ? labeled(DType::kF32, {4, 8}) : labeled(DType::kF32, {128, 512}),
           .classes = 10,
           .batch = tiny ? 2u : 400u}};
}

boost::json::object to_object(const TrainingSetup& setup) {
  boost::json::object to{{"model", setup.name}, {"batch", setup.batch}, {"classes", setup.classes}};
  to["input"] = boost::json::value_from(setup.sample.front().shape);
  const config::ModelVariant& arch = setup.model.arch;
  if (const auto* const gpt = std::get_if<config::GptConfig>(&arch)) {
    to["layers"] = gpt->num_layers;
    to["heads"] = gpt->num_heads;
    to["width"] = gpt->embed_dim;
    to["context"] = gpt->context_length;
  }
  if (const auto* const gpt2 = std::get_if<config::Gpt2Config>(&arch)) {
    to["layers"] = gpt2->num_layers;
    to["heads"] = gpt2->num_heads;
    to["width"] = gpt2->embed_dim;
    to["context"] = gpt2->context_length;
  }
  if (const auto* const llama = std::get_if<config::LlamaConfig>(&arch)) {
    to["layers"] = llama->num_layers;
    to["heads"] = llama->num_heads;
    to["key_value_heads"] = llama->effective_num_key_value_heads();
    to["width"] = llama->embed_dim;
    to["mlp"] = llama->effective_mlp_dim();
    to["context"] = llama->context_length;
  }
  if (const auto* const bert = std::get_if<config::BertConfig>(&arch)) {
    to["layers"] = bert->num_layers;
    to["heads"] = bert->num_heads;
    to["width"] = bert->embed_dim;
    to["context"] = bert->context_length;
    to["vocab"] = bert->vocab_size;
  }
  if (const auto* const captioner = std::get_if<config::CaptionerConfig>(&arch)) {
    to["encoder"] = config::to_string(captioner->encoder.name);
    to["decoder"] = config::to_string(captioner->decoder.name);
    to["layers"] = captioner->decoder.num_layers;
    to["heads"] = captioner->decoder.num_heads;
    to["width"] = captioner->decoder.hidden_size;
    to["context"] = captioner->max_length;
    to["captions"] = setup.sample[1].shape.front();
  }
  if (const auto* const vit = std::get_if<config::VitConfig>(&arch)) {
    to["patch"] = vit->patch_size;
    to["layers"] = vit->num_layers;
    to["heads"] = vit->num_heads;
    to["width"] = vit->hidden_dim;
    to["mlp"] = vit->effective_mlp_dim();
  }
  if (const auto* const mlp = std::get_if<config::MlpConfig>(&arch))
    to["hidden"] = boost::json::value_from(mlp->hidden_sizes);
  if (const auto* const resnet = std::get_if<config::ResnetConfig>(&arch))
    to["layers"] = resnet->depth;
  if (const auto* const blstm = std::get_if<config::BlstmConfig>(&arch))
    to["width"] = blstm->hidden_size;
  return to;
}

std::string to_json(const TrainingSetup& setup, int threads) {
  boost::json::object to = to_object(setup);
  to["threads"] = threads;
  return boost::json::serialize(to);
}

}  // namespace stoker::bench
