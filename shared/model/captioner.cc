// captioner: an image encoder and a decoder of words, trained together or one after the other.
//
// lstm: Show and Tell (Vinyals et al., 2015): the pooled features, projected to the size of a word's
// vector, are the first input of the LSTM, before the start of the caption.
// transformer: pre-norm blocks of causal self-attention, attention to the features of all positions,
// to which learned position embeddings are added, and an MLP with exact GELU.
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include "shared/model/caption_model.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/image_model.h"
#include "shared/model/key_value_cache.h"
#include "shared/model/linear.h"
#include "shared/model/lstm_layers.h"
#include "shared/model/model_factories.h"
#include "shared/model/transformer_block.h"

namespace stoker::model {
namespace {

constexpr double kLstmRange = 0.08;  // im2txt's
constexpr double kTransformerStd = 0.02;

struct DecoderShape {
  config::CaptionDecoderConfig config;
  bool activation_checkpointing = false;
  int64_t max_length = 0;
  int64_t vocab = 0;
  int64_t channels = 0, positions = 0;  // of the features
};

class WordDecoder : public torch::nn::Module {
 public:
  // As CaptionModel::encode(), but of the encoder's features.
  virtual at::Tensor encode(const at::Tensor& features, ImageModel& encoder) = 0;
  // What head() makes the logits of, [batch, time, hidden_size].
  virtual at::Tensor states(const at::Tensor& encoded, const at::Tensor& tokens) = 0;
  // The last of these, [batch, hidden_size]; `cache`: as for CaptionModel::decode_last().
  virtual at::Tensor last_state(const at::Tensor& encoded, const at::Tensor& tokens,
                                KeyValueCache& /*cache*/) {
    return states(encoded, tokens).select(1, -1);
  }
  at::Tensor head(const at::Tensor& states) { return linear(head_, states); }

 protected:
  explicit WordDecoder(double dropout) : dropout_(dropout) {}
  at::Tensor drop(const at::Tensor& x) const { return drop_out(x, dropout_, is_training()); }

  const double dropout_;
  torch::nn::Linear head_{nullptr};
};

class LstmDecoder : public WordDecoder {
 public:
  explicit LstmDecoder(const DecoderShape& shape)
      : WordDecoder(shape.config.dropout),
        image_(
            register_module("image", torch::nn::Linear(shape.channels, shape.config.hidden_size))),
        tok_(register_module("tok", torch::nn::Embedding(shape.vocab, shape.config.hidden_size))),
        lstm_(register_module(
            "lstm", torch::nn::LSTM(
                        torch::nn::LSTMOptions(shape.config.hidden_size, shape.config.hidden_size)
                            .num_layers(shape.config.num_layers)
                            .dropout(shape.config.num_layers > 1 ? shape.config.dropout : 0.0)
                            .batch_first(true)))) {
    head_ = register_module("head", torch::nn::Linear(shape.config.hidden_size, shape.vocab));
    for (auto& item : named_parameters())
      torch::nn::init::uniform_(item.value(), -kLstmRange, kLstmRange);
  }

  at::Tensor encode(const at::Tensor& features, ImageModel& encoder) override {
    return linear(image_, encoder.pooled(features));
  }
  at::Tensor states(const at::Tensor& encoded, const at::Tensor& tokens) override {
    const at::Tensor words = tok_(tokens);
    const at::Tensor inputs = at::cat({encoded.unsqueeze(1).to(words.scalar_type()), words}, 1);
    return drop(run_lstm(lstm_, drop(inputs)).steps.narrow(1, 1, tokens.size(1)));
  }

 private:
  torch::nn::Linear image_;
  torch::nn::Embedding tok_;
  torch::nn::LSTM lstm_;
};

BlockSettings decoder_block(const config::CaptionDecoderConfig& config,
                            bool activation_checkpointing) {
  return {.embed_dim = config.hidden_size,
          .mlp_dim = 4 * config.hidden_size,
          .num_heads = config.num_heads,
          .num_key_value_heads = config.num_heads,
          .head_dim = config.hidden_size / config.num_heads,
          .has_cross_attention = true,
          .dropout = config.dropout,
          .attention_dropout = config.dropout,
          .activation_checkpointing = activation_checkpointing};
}

class TransformerDecoder : public WordDecoder {
 public:
  explicit TransformerDecoder(const DecoderShape& shape)
      : WordDecoder(shape.config.dropout),
        max_length_(shape.max_length),
        block_(decoder_block(shape.config, shape.activation_checkpointing)) {
    const int64_t width = shape.config.hidden_size;
    image_ = register_module("image", torch::nn::Linear(shape.channels, width));
    image_pos_ = register_module("image_pos", torch::nn::Embedding(shape.positions, width));
    image_ln_ = register_module("image_ln", torch::nn::LayerNorm(std::vector<int64_t>{width}));
    tok_ = register_module("tok", torch::nn::Embedding(shape.vocab, width));
    pos_ = register_module("pos", torch::nn::Embedding(shape.max_length, width));
    const auto list = register_module("blocks", std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < shape.config.num_layers; ++i)
      blocks_.push_back(
          list->register_module(std::to_string(i), std::make_shared<TransformerBlock>(block_)));
    ln_ = register_module("ln", std::make_shared<NormLayer>(block_, width));
    head_ = register_module("head", torch::nn::Linear(width, shape.vocab));
    initialize(shape.config.num_layers);
  }

  at::Tensor encode(const at::Tensor& features, ImageModel& /*encoder*/) override {
    return image_ln_(linear(image_, features) + image_pos_->weight);
  }
  at::Tensor states(const at::Tensor& encoded, const at::Tensor& tokens) override {
    BlockContext context;
    context.memory = encoded;
    at::Tensor x = embed(tokens, 0);
    for (const auto& block : blocks_)
      x = block->forward_checkpointed(x, context, /*adapter_dropout=*/0);
    return ln_->forward(x);
  }
  at::Tensor last_state(const at::Tensor& encoded, const at::Tensor& tokens,
                        KeyValueCache& cache) override {
    BlockContext context;
    context.memory = encoded;
    at::Tensor x = embed(tokens, cache.length());
    for (size_t i = 0; i < blocks_.size(); ++i) {
      context.maybe_cache = &cache.layer(2 * i);
      context.maybe_memory_cache = &cache.layer(2 * i + 1);
      x = blocks_[i]->forward(x, context);
    }
    return ln_->forward(x.select(1, -1));
  }

 private:
  // The tokens from position `first` on.
  at::Tensor embed(const at::Tensor& tokens, int64_t first) {
    const int64_t time = tokens.size(1) - first;
    TORCH_CHECK(tokens.size(1) <= max_length_, "captioner: ", tokens.size(1),
                " tokens, the maximum is ", max_length_);
    return drop(tok_(tokens.narrow(1, first, time)) + pos_->weight.narrow(0, first, time));
  }

  // As for gpt; each block adds three times to the residual stream.
  void initialize(int64_t layers) {
    const double residual = kTransformerStd / std::sqrt(3.0 * static_cast<double>(layers));
    for (auto& item : named_parameters()) {
      const std::string& name = item.key();
      const bool is_residual = name.ends_with("proj.weight") || name.ends_with("down.weight");
      // The features of the encoder are not normalized; image_ln does it.
      if (name.starts_with("image.")) continue;
      if (item.value().dim() == 2)
        torch::nn::init::normal_(item.value(), 0.0, is_residual ? residual : kTransformerStd);
      else if (name.ends_with("bias"))
        torch::nn::init::zeros_(item.value());
    }
  }

  const int64_t max_length_;
  const BlockSettings block_;
  torch::nn::Linear image_{nullptr};
  torch::nn::Embedding image_pos_{nullptr};
  torch::nn::LayerNorm image_ln_{nullptr};
  torch::nn::Embedding tok_{nullptr}, pos_{nullptr};
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  NormPtr ln_;
};

class Captioner : public CaptionModel {
 public:
  Captioner(ImageModelPtr encoder, const DecoderShape& shape)
      : encoder_(register_module("encoder", std::move(encoder))) {
    if (shape.config.name == config::CaptionDecoder::kTransformer)
      decoder_ = std::make_shared<TransformerDecoder>(shape);
    else
      decoder_ = std::make_shared<LstmDecoder>(shape);
    register_module("decoder", decoder_);
  }

  // The logits of the first word.
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor start =
        at::zeros({input.size(0), 1}, at::TensorOptions().dtype(at::kLong).device(input.device()));
    return decode(encode(input), start);
  }

  // While it is frozen, the encoder computes as in evaluation, so that its batch norms use and keep
  // the statistics that it was pretrained with.
  at::Tensor encode(const at::Tensor& images) override {
    const bool is_trained = is_training() && has_trained_encoder();
    if (encoder_->is_training() != is_trained) encoder_->train(is_trained);
    return decoder_->encode(encoder_->features(images), *encoder_);
  }
  at::Tensor decode(const at::Tensor& encoded, const at::Tensor& tokens) override {
    return decoder_->head(decoder_->states(encoded, tokens));
  }
  at::Tensor decode_last(const at::Tensor& encoded, const at::Tensor& tokens,
                         KeyValueCache& cache) override {
    return decoder_->head(decoder_->last_state(encoded, tokens, cache));
  }

 private:
  bool has_trained_encoder() const {
    for (const at::Tensor& parameter : encoder_->parameters())
      if (parameter.requires_grad()) return true;
    return false;
  }

  const ImageModelPtr encoder_;
  std::shared_ptr<WordDecoder> decoder_;
};

Result<ImageModelPtr> make_encoder(const config::CaptionerConfig& config, const Samples& sample) {
  using config::ImageEncoder;
  config::VitConfig vit;  // of b_16
  const ImageEncoder name = config.encoder.name;
  switch (name) {
    case ImageEncoder::kInceptionV3:
      return make_inception_v3_encoder(sample);
    case ImageEncoder::kResnet18:
    case ImageEncoder::kResnet34:
    case ImageEncoder::kResnet50:
    case ImageEncoder::kResnet101:
    case ImageEncoder::kResnet152:
    case ImageEncoder::kResnet8:
    case ImageEncoder::kResnet14:
    case ImageEncoder::kResnet20:
    case ImageEncoder::kResnet32:
    case ImageEncoder::kResnet44:
    case ImageEncoder::kResnet56: {
      const std::string depth(config::to_string(name).substr(std::string_view("resnet").size()));
      return make_resnet_encoder({.depth = std::stoi(depth)}, sample);
    }
    case ImageEncoder::kVitB16:
    case ImageEncoder::kVitB32:
    case ImageEncoder::kVitL16:
    case ImageEncoder::kVitL32:
      break;
  }
  vit.activation_checkpointing = config.activation_checkpointing;
  vit.preset = config::to_string(name).substr(std::string_view("vit_").size());
  if (vit.preset.ends_with("32")) vit.patch_size = 32;
  if (vit.preset.starts_with("l")) {
    vit.num_layers = 24;
    vit.num_heads = 16;
    vit.hidden_dim = 1024;
  }
  return make_vit_encoder(vit, sample);
}

}  // namespace

Result<ModelPtr> make_captioner(const config::CaptionerConfig& config,
                                std::optional<int64_t> num_classes, const Samples& sample,
                                uint64_t classes) {
  const config::CaptionDecoderConfig& decoder = config.decoder;
  if (decoder.hidden_size < 1 || decoder.num_layers < 1 || decoder.num_heads < 1 ||
      config.max_length < 1 ||
      (decoder.name == config::CaptionDecoder::kTransformer &&
       decoder.hidden_size % decoder.num_heads != 0))
    return Status(
        StatusCode::kInvalidArgument,
        "model captioner: max_length and the sizes of the decoder must be at least 1, and "
        "decoder.hidden_size a multiple of decoder.num_heads");
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input, find_input_tensor(sample, "captioner", 1));
  STOKER_ASSIGN_OR_RETURN(const int64_t vocab, num_outputs(num_classes, sample, classes));
  const TensorSpec* const labels = find_tensor(sample, TensorRole::kLabels);
  if (labels == nullptr || labels->shape.size() != 2)
    return Status(StatusCode::kMismatch,
                  "model captioner needs samples with captions, `labels` [captions, tokens]; the "
                  "data has " +
                      describe(sample));
  if (labels->shape[1] > config.max_length)
    return Status(StatusCode::kMismatch, "model.max_length is " +
                                             std::to_string(config.max_length) +
                                             ", but the data's captions have up to " +
                                             std::to_string(labels->shape[1]) + " tokens");
  STOKER_ASSIGN_OR_RETURN(ImageModelPtr encoder, make_encoder(config, sample));
  // The shape of the features of one image.
  encoder->eval();
  std::vector<int64_t> shape{1};
  shape.insert(shape.end(), input.shape.begin(), input.shape.end());
  at::Tensor features;
  {
    const at::NoGradGuard no_grad;
    features = encoder->features(at::zeros(shape));
  }
  encoder->train();
  return ModelPtr(std::make_shared<Captioner>(
      std::move(encoder), DecoderShape{.config = decoder,
                                       .activation_checkpointing = config.activation_checkpointing,
                                       .max_length = config.max_length,
                                       .vocab = vocab,
                                       .channels = features.size(2),
                                       .positions = features.size(1)}));
}

}  // namespace stoker::model
