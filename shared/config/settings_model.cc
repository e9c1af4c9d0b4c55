// The settings under model: a list of descriptors per model, and those of layers.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr double kMaxUnits = 1e6;          // per layer
constexpr double kMaxOutputs = 1e7;        // classes or vocabulary tokens
constexpr double kMaxContextLength = 1e7;  // tokens
constexpr double kMaxPixels = 1e5;         // per side
constexpr double kMaxLayers = 1000;
constexpr double kMaxDropout = 0.99;
constexpr double kMaxInit = 1e6;  // absolute value of an argument of an initialization

// For settings that determine the model.
Field model_field(Field field) {
  field.affects_result = true;
  field.on_resume = OnResume::kModel;
  return field;
}

template <typename Number>
Field count_field(std::string_view name, Number& target, double max, std::string_view help,
                  std::string_view details = {}) {
  return model_field(
      {.name = name, .target = &target, .help = help, .details = details, .min = 1, .max = max});
}

Field required_count(std::string_view name, int64_t& target, double max, std::string_view help,
                     std::string_view example) {
  Field field = count_field(name, target, max, help);
  field.is_required = true;
  field.example = example;
  return field;
}

// ---- layers -------------------------------------------------------------------------------------

Field kernel_size_field(int64_t& size) {
  return required_count("kernel_size", size, kMaxPixels, "Side of the square window, in pixels",
                        "3");
}

Field padding_field(int64_t& padding) {
  return model_field({.name = "padding",
                      .target = &padding,
                      .help = "Pixels added on each side",
                      .min = 0,
                      .max = kMaxPixels});
}

Field bias_field(bool& bias) {
  return model_field({.name = "bias", .target = &bias, .help = "Add a bias to the output"});
}

Fields fields_of(Conv2dLayer& conv) {
  return {required_count("out_channels", conv.out_channels, kMaxUnits, "Number of output channels",
                         "32"),
          kernel_size_field(conv.kernel_size),
          count_field("stride", conv.stride, kMaxPixels, "Step of the window, in pixels"),
          padding_field(conv.padding),
          count_field("groups", conv.groups, kMaxUnits,
                      "Groups of channels that are convolved separately",
                      "It must divide the input and the output channels."),
          bias_field(conv.bias)};
}

Fields fields_of(LinearLayer& linear) {
  return {count_field("out_features", linear.out_features, kMaxOutputs,
                      "Size of the output; null: from the data",
                      "null is the number of classes or targets, for the last layer."),
          bias_field(linear.bias)};
}

Fields fields_of(EmbeddingLayer& embedding) {
  return {required_count("num_embeddings", embedding.num_embeddings, kMaxOutputs,
                         "Size of the vocabulary", "256"),
          required_count("embedding_dim", embedding.embedding_dim, kMaxUnits,
                         "Size of the vector of each token", "128")};
}

Fields fields_of(LstmLayer& lstm) {
  return {required_count("hidden_size", lstm.hidden_size, kMaxUnits, "Size of the state", "128")};
}

Fields fields_of(BatchNormLayer&) { return {}; }
Fields fields_of(LayerNormLayer&) { return {}; }
Fields fields_of(ReluLayer&) { return {}; }
Fields fields_of(GeluLayer&) { return {}; }
Fields fields_of(TanhLayer&) { return {}; }
Fields fields_of(SigmoidLayer&) { return {}; }
Fields fields_of(FlattenLayer&) { return {}; }

Fields fields_of_pool(auto& pool) {
  return {kernel_size_field(pool.kernel_size),
          count_field("stride", pool.stride, kMaxPixels,
                      "Step of the window, in pixels; null: kernel_size"),
          padding_field(pool.padding)};
}
Fields fields_of(MaxPool2dLayer& pool) { return fields_of_pool(pool); }
Fields fields_of(AvgPool2dLayer& pool) { return fields_of_pool(pool); }

Fields fields_of(AdaptiveAvgPool2dLayer& pool) {
  return {count_field("output_size", pool.output_size, kMaxPixels,
                      "Side of the square output, in pixels")};
}

Fields fields_of(DropoutLayer& dropout) {
  return {model_field({.name = "p",
                       .target = &dropout.p,
                       .help = "Fraction of the values set to 0 in training; 0 to 0.99",
                       .min = 0,
                       .max = kMaxDropout})};
}

Fields layer_fields(Layer& layer);

constexpr auto kLayerNames =
    std::to_array({"conv2d"sv, "linear"sv, "embedding"sv, "lstm"sv, "batch_norm"sv, "layer_norm"sv,
                   "relu"sv, "gelu"sv, "tanh"sv, "sigmoid"sv, "max_pool2d"sv, "avg_pool2d"sv,
                   "adaptive_avg_pool2d"sv, "dropout"sv, "flatten"sv, "residual"sv});
static_assert(kLayerNames.size() == std::variant_size_v<LayerVariant>);

Fields fields_of(ResidualLayer& residual) {
  return {
      model_field({.name = "body",
                   .target = tagged_list<layer_fields>(residual.body, kLayerNames),
                   .help = "List of layers whose output is added to that of the shortcut",
                   .is_required = true,
                   .example = "[conv2d: {out_channels: 32, kernel_size: 3, padding: 1}, relu]"}),
      model_field({.name = "shortcut",
                   .target = tagged_list<layer_fields>(residual.shortcut, kLayerNames),
                   .help = "Layers of the shortcut; []: the input itself",
                   .example = "[conv2d: {out_channels: 32, kernel_size: 1}]"})};
}

Fields layer_fields(Layer& layer) {
  return std::visit([](auto& each) { return fields_of(each); }, layer.variant());
}

// ---- initial values -----------------------------------------------------------------------------

// Not OnResume::kModel: a resumed run has the values of its checkpoint.
Field init_field(Field field) {
  field.affects_result = true;
  return field;
}

Field std_field(double& std) {
  return init_field({.name = "std",
                     .target = &std,
                     .help = "Standard deviation",
                     .min = 0,
                     .max = kMaxInit,
                     .exclusive_min = true});
}
// A number of any sign, unless `min` is given.
Field init_number(std::string_view name, double& target, std::string_view help,
                  std::string_view details = {}, double min = -kMaxInit) {
  return init_field({.name = name,
                     .target = &target,
                     .help = help,
                     .details = details,
                     .min = min,
                     .max = kMaxInit});
}
Field mean_field(double& mean) { return init_number("mean", mean, "Mean of the distribution"); }
Field gain_field(double& gain) { return init_number("gain", gain, "Scaling factor"); }

Fields fields_of(ZerosInit&) { return {}; }
Fields fields_of(OnesInit&) { return {}; }
Fields fields_of(ConstantInit& constant) {
  Field field = init_number("", constant.val, "Value of every element");
  field.is_required = true;
  field.example = "0.1";
  return {field};
}
Fields fields_of(NormalInit& normal) { return {mean_field(normal.mean), std_field(normal.std)}; }
Fields fields_of(UniformInit& uniform) {
  return {init_number("a", uniform.a, "Lower bound"), init_number("b", uniform.b, "Upper bound")};
}
Fields fields_of(TruncNormalInit& normal) {
  return {mean_field(normal.mean), std_field(normal.std), init_number("a", normal.a, "Lower bound"),
          init_number("b", normal.b, "Upper bound")};
}
Fields fields_of(XavierUniformInit& xavier) { return {gain_field(xavier.gain)}; }
Fields fields_of(XavierNormalInit& xavier) { return {gain_field(xavier.gain)}; }
Fields kaiming_fields(auto& kaiming) {
  return {init_number("a", kaiming.a, "Negative slope of leaky_relu", {}, 0),
          init_field({.name = "mode",
                      .target = choice(kaiming.mode),
                      .help = "Pass whose variance is preserved: fan_in, fan_out",
                      .details = "fan_in: the forward pass. fan_out: the backward pass."}),
          init_field({.name = "nonlinearity",
                      .target = choice(kaiming.nonlinearity),
                      .help = "Activation function that follows"})};
}
Fields fields_of(KaimingUniformInit& kaiming) { return kaiming_fields(kaiming); }
Fields fields_of(KaimingNormalInit& kaiming) { return kaiming_fields(kaiming); }
Fields fields_of(OrthogonalInit& orthogonal) { return {gain_field(orthogonal.gain)}; }

constexpr auto kInitNames =
    std::to_array({"zeros"sv, "ones"sv, "constant"sv, "normal"sv, "uniform"sv, "trunc_normal"sv,
                   "xavier_uniform"sv, "xavier_normal"sv, "kaiming_uniform"sv, "kaiming_normal"sv,
                   "orthogonal"sv});
static_assert(kInitNames.size() == std::variant_size_v<InitVariant>);

Fields init_fields(InitVariant& init) {
  return std::visit([](auto& each) { return fields_of(each); }, init);
}

// ---- models -------------------------------------------------------------------------------------

Field num_layers_field(int64_t& num_layers, std::string_view help) {
  return count_field("num_layers", num_layers, kMaxLayers, help, "1 to 1000.");
}

Field dropout_field(double& dropout, std::string_view details) {
  return model_field({.name = "dropout",
                      .target = &dropout,
                      .help = "Fraction of the activations dropped in training; 0 to 0.99",
                      .details = details,
                      .min = 0,
                      .max = kMaxDropout});
}

constexpr auto kDropoutDetails =
    "Raise it if the data is seen many times and the validation loss increases while the training "
    "loss decreases."sv;

Field attention_dropout_field(double& rate) {
  return model_field({.name = "attention_dropout",
                      .target = &rate,
                      .help = "Fraction of the attention weights dropped in training; 0 to 0.99",
                      .min = 0,
                      .max = kMaxDropout});
}

Field context_length_field(int64_t& context_length) {
  return count_field("context_length", context_length, kMaxContextLength,
                     "Maximum number of tokens in a sequence",
                     "At least the sequence.block_size of every dataset.");
}

template <typename Number>
Field vocab_size_field(Number& vocab_size, std::string_view details) {
  return count_field("vocab_size", vocab_size, kMaxOutputs, "Size of the vocabulary", details);
}

constexpr auto kVocabDetails =
    "null: the number of tokens of the data, also the default with a tokenizer. A larger one pads "
    "the vocabulary. At least 256 for text whose tokens are bytes. A sample with a larger token id "
    "is a sample error."sv;

Field num_heads_field(int64_t& num_heads, std::string_view details) {
  return count_field("num_heads", num_heads, kMaxUnits, "Number of attention heads", details);
}

Field embed_dim_field(int64_t& embed_dim, std::string_view details) {
  return count_field("embed_dim", embed_dim, kMaxUnits, "Size of the vector of each token",
                     details);
}

Field activation_checkpointing_field(bool& activation_checkpointing) {
  return {.name = "activation_checkpointing",
          .target = &activation_checkpointing,
          .help = "Recompute the blocks in the backward pass to save memory",
          .details =
              "Only the input of each block is stored. Less memory, about a third more "
              "time per step, bit-for-bit the same results. captioner: the blocks of a vit "
              "encoder and of a transformer decoder; it must have one of them."};
}

Field tie_weights_field(bool& tie_weights, std::string_view details) {
  return model_field({.name = "tie_weights",
                      .target = &tie_weights,
                      .help = "Share the weights of the embedding with the output layer",
                      .details = details});
}

// A term that keeps a norm from dividing by 0.
Field eps_field(std::string_view name, double& eps) {
  return model_field({.name = name,
                      .target = &eps,
                      .help = "Number that the norms add to the variance",
                      .min = 0,
                      .max = 1,
                      .exclusive_min = true});
}

constexpr auto kHeadsDetails = "Each head has embed_dim / num_heads dimensions."sv;
constexpr auto kEmbedDimDetails =
    "A multiple of num_heads. The number of parameters grows with its square."sv;

Fields fields_of(GptConfig& gpt) {
  return {num_layers_field(gpt.num_layers, "Number of transformer blocks"),
          num_heads_field(gpt.num_heads, kHeadsDetails),
          embed_dim_field(gpt.embed_dim, kEmbedDimDetails),
          context_length_field(gpt.context_length),
          vocab_size_field(gpt.vocab_size, kVocabDetails),
          dropout_field(gpt.dropout, kDropoutDetails),
          activation_checkpointing_field(gpt.activation_checkpointing)};
}

Fields fields_of(Gpt2Config& gpt2) {
  return {num_layers_field(gpt2.num_layers, "Number of transformer blocks"),
          num_heads_field(gpt2.num_heads, kHeadsDetails),
          embed_dim_field(gpt2.embed_dim, kEmbedDimDetails),
          count_field("mlp_dim", gpt2.mlp_dim, kMaxUnits,
                      "Hidden size of the blocks' MLPs; null: 4 x embed_dim"),
          context_length_field(gpt2.context_length),
          vocab_size_field(gpt2.vocab_size, kVocabDetails),
          eps_field("layer_norm_eps", gpt2.layer_norm_eps),
          tie_weights_field(gpt2.tie_weights, "Saves vocab_size x embed_dim parameters."),
          dropout_field(gpt2.dropout, kDropoutDetails),
          activation_checkpointing_field(gpt2.activation_checkpointing)};
}

Field frequency_factor_field(std::string_view name, double& factor, std::string_view help) {
  return model_field({.name = name,
                      .target = &factor,
                      .help = help,
                      .details = "Only for llama3, where low_freq_factor is below "
                                 "high_freq_factor.",
                      .min = 0,
                      .max = 1e6,
                      .exclusive_min = true});
}

Fields rope_scaling_fields(RopeScaling& scaling) {
  return {
      model_field({.name = "rope_type",
                   .target = choice(scaling.rope_type),
                   .help = "Frequencies that are divided by factor: linear, llama3",
                   .details = "linear: all. llama3: the low ones, gradually, as in Llama 3.1."}),
      model_field({.name = "factor",
                   .target = &scaling.factor,
                   .help = "Ratio of the context length to that of the pretraining",
                   .min = 1,
                   .max = 1e6,
                   .is_required = true,
                   .example = "8"}),
      frequency_factor_field("low_freq_factor", scaling.low_freq_factor,
                             "Periods per original context below which frequencies are "
                             "divided by factor"),
      frequency_factor_field("high_freq_factor", scaling.high_freq_factor,
                             "Periods per original context above which frequencies are kept"),
      count_field("original_max_position_embeddings", scaling.original_max_position_embeddings, 1e9,
                  "Context length of the pretraining", "Only for llama3.")};
}

Fields attention_fields(LlamaConfig& llama) {
  return {num_heads_field(llama.num_heads, "Of the queries."),
          count_field("num_key_value_heads", llama.num_key_value_heads, kMaxUnits,
                      "Number of heads of keys and values; null: num_heads",
                      "It must divide num_heads. 1 is multi-query attention."),
          embed_dim_field(llama.embed_dim, "The number of parameters grows with its square."),
          count_field("head_dim", llama.head_dim, kMaxUnits,
                      "Size of each head, an even number; null: embed_dim / num_heads")};
}

Field pad_token_field(std::optional<int64_t>& target) {
  return model_field({.name = "pad_token",
                      .target = &target,
                      .help = "Id of the token whose embedding is not trained; null: none",
                      .details = "As padding_idx of PyTorch's Embedding: it starts as 0, and the "
                                 "loss has no gradient through it. With weights of a Hugging Face "
                                 "folder, the default is its pad_token_id. An output layer with "
                                 "the same weights (tie_weights) still trains it.",
                      .min = 0,
                      .max = kMaxOutputs,
                      .example = "0"});
}

Fields bias_fields(LlamaConfig& llama) {
  return {model_field({.name = "qkv_bias",
                       .target = &llama.qkv_bias,
                       .help = "Add biases to queries, keys and values",
                       .details = "Qwen2 has them."}),
          model_field({.name = "proj_bias",
                       .target = &llama.proj_bias,
                       .help = "Add a bias to the output of the attention"}),
          model_field({.name = "mlp_bias",
                       .target = &llama.mlp_bias,
                       .help = "Add biases to the linear layers of the MLPs"}),
          model_field({.name = "qk_norm",
                       .target = &llama.qk_norm,
                       .help = "Normalize the queries and keys of each head",
                       .details = "Qwen3 does."})};
}

Fields fields_of(LlamaConfig& llama) {
  Fields fields{num_layers_field(llama.num_layers, "Number of transformer blocks")};
  const auto add = [&fields](Fields more) {
    for (Field& field : more) fields.push_back(std::move(field));
  };
  add(attention_fields(llama));
  add({count_field("mlp_dim", llama.mlp_dim, kMaxUnits,
                   "Hidden size of the blocks' MLPs; null: 8/3 x embed_dim, rounded up to a "
                   "multiple of 256"),
       context_length_field(llama.context_length),
       vocab_size_field(llama.vocab_size, kVocabDetails),
       model_field({.name = "rope_theta",
                    .target = &llama.rope_theta,
                    .help = "Base of the frequencies of rotary position embeddings",
                    .min = 1,
                    .max = 1e12,
                    .exclusive_min = true}),
       model_field({.name = "rope_scaling",
                    .target = mapping<rope_scaling_fields>(llama.rope_scaling),
                    .help = "Scaling of these frequencies for a longer context; null: none",
                    .example = "{rope_type: llama3, factor: 8}"}),
       eps_field("rms_norm_eps", llama.rms_norm_eps)});
  add(bias_fields(llama));
  add({tie_weights_field(llama.tie_weights, "Saves vocab_size x embed_dim parameters."),
       pad_token_field(llama.pad_token), attention_dropout_field(llama.attention_dropout),
       activation_checkpointing_field(llama.activation_checkpointing)});
  return fields;
}

Fields fields_of(LstmLmConfig& lstm) {
  return {num_layers_field(lstm.num_layers, "Number of LSTM layers"),
          count_field("hidden_size", lstm.hidden_size, kMaxUnits,
                      "Size of the state and of the vector of each token"),
          context_length_field(lstm.context_length),
          vocab_size_field(lstm.vocab_size, kVocabDetails),
          dropout_field(lstm.dropout, kDropoutDetails),
          tie_weights_field(lstm.tie_weights, "Saves vocab_size x hidden_size parameters.")};
}

Fields fields_of(BertConfig& bert) {
  return {
      num_layers_field(bert.num_layers, "Number of transformer blocks"),
      num_heads_field(bert.num_heads, kHeadsDetails),
      embed_dim_field(bert.embed_dim, kEmbedDimDetails),
      count_field("mlp_dim", bert.mlp_dim, kMaxUnits,
                  "Hidden size of the blocks' MLPs; null: 4 x embed_dim"),
      count_field("context_length", bert.context_length, kMaxContextLength,
                  "Maximum number of tokens in a sequence",
                  "At least the sequence.max_length of every dataset."),
      vocab_size_field(bert.vocab_size, "At least that of the tokenizer."),
      count_field("num_token_types", bert.num_token_types, kMaxUnits,
                  "Number of token types, which tell the parts of a sequence apart"),
      model_field({.name = "sep_token",
                   .target = &bert.sep_token,
                   .help = "Id of the token that ends each part of a sequence; null: one part",
                   .details =
                       "The type of a token is the number of these tokens before it, at most "
                       "num_token_types - 1. null: all tokens have type 0.",
                   .min = 0,
                   .max = kMaxOutputs,
                   .example = "102"}),
      pad_token_field(bert.pad_token),
      eps_field("layer_norm_eps", bert.layer_norm_eps),
      model_field({.name = "pooling",
                   .target = choice(bert.pooling),
                   .help = "States that the output layer sees: pooler, mean, none",
                   .details =
                       "pooler: a linear layer and tanh of the first token's state. mean: the mean "
                       "of the states of all tokens. none: the states of each token; required by "
                       "the tasks sequence_labeling and ctc, and their default. Padding is never "
                       "included."}),
      dropout_field(bert.dropout, kDropoutDetails),
      attention_dropout_field(bert.attention_dropout),
      activation_checkpointing_field(bert.activation_checkpointing)};
}

Fields fields_of(BlstmConfig& blstm) {
  return {
      num_layers_field(blstm.num_layers, "Number of bidirectional LSTM layers"),
      count_field("hidden_size", blstm.hidden_size, kMaxUnits,
                  "Size of the state of each direction"),
      vocab_size_field(blstm.vocab_size,
                       "Not used if the samples are vectors. At least 256 if the tokens are "
                       "bytes."),
      count_field("embedding_dim", blstm.embedding_dim, kMaxUnits,
                  "Size of the vector of each token; null: hidden_size",
                  "Not used if the samples are vectors."),
      dropout_field(blstm.dropout, kDropoutDetails),
      model_field({.name = "pooling",
                   .target = choice(blstm.pooling),
                   .help = "States that the output layer sees: last, mean, none",
                   .details =
                       "last: the final states of both directions. mean: the mean of the states "
                       "over all time steps. none: the states of each time step; required by "
                       "the tasks sequence_labeling and ctc, and their default. Padding is "
                       "never included."}),
      init_number("forget_bias", blstm.forget_bias, "Added to the initial bias of the forget gates",
                  "1 makes the states persist at the start of training, as TensorFlow's LSTM "
                  "cells do by default. It is added to bias_ih after model.init.")};
}

Fields fields_of(MlpConfig& mlp) {
  return {model_field({.name = "hidden_sizes",
                       .target = &mlp.hidden_sizes,
                       .help = "Sizes of the hidden layers; []: a linear model",
                       .min = 1,
                       .max = kMaxOutputs}),
          count_field("in_features", mlp.in_features, 1e9,
                      "Number of elements in an input; null: from the data",
                      "Another number than that of the data is an error."),
          dropout_field(mlp.dropout, kDropoutDetails)};
}

Fields fields_of(Lenet5Config&) { return {}; }
Fields fields_of(ResnetConfig&) { return {}; }

Field hidden_dim_field(int64_t& hidden_dim) {
  return count_field("hidden_dim", hidden_dim, kMaxUnits,
                     "Size of the two hidden fully connected layers",
                     "The default is that of torchvision. Most parameters are in these layers; a "
                     "smaller size is sufficient for a small number of classes.");
}

constexpr auto kHeadDropoutDetails = "Applied between the fully connected layers."sv;

Fields fields_of(VggConfig& vgg) {
  return {hidden_dim_field(vgg.hidden_dim), dropout_field(vgg.dropout, kHeadDropoutDetails)};
}

Fields fields_of(AlexnetConfig& alexnet) {
  return {hidden_dim_field(alexnet.hidden_dim),
          dropout_field(alexnet.dropout, kHeadDropoutDetails)};
}

Fields fields_of(InceptionV3Config& inception) {
  return {model_field({.name = "aux_logits",
                       .target = &inception.aux_logits,
                       .help = "Add the auxiliary classifier, whose loss helps training",
                       .details = "See task.aux_loss_weight. With it images must have at least "
                                  "299 x 299 pixels, without it 75 x 75."}),
          dropout_field(inception.dropout, "Applied before the last layer.")};
}

Fields size_fields(VitConfig& vit) {
  return {count_field("image_size", vit.image_size, kMaxPixels,
                      "Side of the square images, in pixels; null: from the data",
                      "Only images of this size can be used for training and evaluation, because "
                      "each patch has its own position embedding."),
          count_field("patch_size", vit.patch_size, 1e4, "Side of the square patches, in pixels",
                      "It must divide the side of the images. Half the size is four times as many "
                      "patches, and more than four times the computation."),
          num_layers_field(vit.num_layers, "Number of transformer blocks"),
          count_field("num_heads", vit.num_heads, kMaxUnits, "Number of attention heads",
                      "Each head has hidden_dim / num_heads dimensions."),
          count_field("hidden_dim", vit.hidden_dim, kMaxUnits, "Size of the vector of each patch",
                      "A multiple of num_heads. The number of parameters grows with its square."),
          count_field("mlp_dim", vit.mlp_dim, kMaxUnits,
                      "Hidden size of the blocks' MLPs; null: 4 x hidden_dim")};
}

Fields fields_of(VitConfig& vit) {
  Fields fields = vit.preset.empty() ? size_fields(vit) : Fields{};
  fields.push_back(eps_field("layer_norm_eps", vit.layer_norm_eps));
  fields.push_back(dropout_field(vit.dropout, kDropoutDetails));
  fields.push_back(activation_checkpointing_field(vit.activation_checkpointing));
  return fields;
}

Fields encoder_fields(CaptionEncoderConfig& encoder) {
  return {model_field({.name = "name",
                       .target = choice(encoder.name),
                       .help = "Image model whose features describe the image",
                       .details = "The models of these names without their last layer, and "
                                  "inception_v3 without its auxiliary classifier."})};
}

Fields decoder_fields(CaptionDecoderConfig& decoder) {
  return {model_field(
              {.name = "name",
               .target = choice(decoder.name),
               .help = "Model that generates the words: lstm, transformer",
               .details =
                   "lstm: the mean of the features (vit: the class token) is its "
                   "first input, as in Show and Tell. transformer: attends to the features of all "
                   "positions."}),
          count_field("hidden_size", decoder.hidden_size, kMaxUnits,
                      "Size of the state and of the vector of each word",
                      "transformer: a multiple of num_heads."),
          num_layers_field(decoder.num_layers, "Number of LSTM layers or transformer blocks"),
          count_field("num_heads", decoder.num_heads, kMaxUnits,
                      "Number of attention heads of a transformer"),
          dropout_field(decoder.dropout, "0.3 is that of Show and Tell.")};
}

Fields fields_of(CaptionerConfig& captioner) {
  return {model_field({.name = "encoder",
                       .target = mapping<encoder_fields>(captioner.encoder),
                       .help = "Encoder of the image",
                       .details = "Its parameters are named encoder.*.",
                       .example = "{name: resnet50}"}),
          model_field({.name = "decoder",
                       .target = mapping<decoder_fields>(captioner.decoder),
                       .help = "Decoder that generates the caption",
                       .details = "Its parameters are named decoder.*.",
                       .example = "{name: transformer, num_layers: 4}"}),
          count_field("max_length", captioner.max_length, 1e4,
                      "Maximum number of tokens in a caption, with its end",
                      "The default of sequence.max_label_length."),
          activation_checkpointing_field(captioner.activation_checkpointing)};
}

Fields fields_of(SequentialConfig& sequential) {
  return {model_field(
      {.name = "layers",
       .target = tagged_list<layer_fields>(sequential.layers, kLayerNames),
       .help = "List of layers, modules of torch.nn in snake case",
       .details =
           "conv2d, linear, embedding (first layer only), lstm, batch_norm, layer_norm, relu, "
           "gelu, tanh, sigmoid, max_pool2d, avg_pool2d, adaptive_avg_pool2d, dropout, "
           "flatten, and residual with two lists of layers, body and shortcut. Arguments and "
           "parameter names are those of PyTorch.",
       .is_required = true,
       .example = "[flatten, linear: {out_features: 64}, relu, linear]"})};
}

Fields fields_of(PluginConfig& plugin) {
  // The content of the file determines the model, not its location: see Manifest::model_file.
  return {
      {.name = "path",
       .target = &plugin.path,
       .help = "Shared object with the model",
       .details = "stokerd and stoker-eval load and execute it: use only files that you trust. A "
                  "file that any user can write to is rejected. Its SHA-256 is part of the run: "
                  "resuming with another file requires --allow-model-change. Its location does "
                  "not matter.",
       .is_required = true,
       .example = "my_model.so"},
      model_field({.name = "args",
                   .target = UntypedMapField{&plugin.args},
                   .help = "Arguments of the plugin's factory: any keys and values",
                   .details = "A key that the factory does not read is an error. --set "
                              "model.args.width=32 changes one.",
                   .example = "{width: 64}"})};
}

Fields fields_of(ExportedConfig& exported) {
  return {{.name = "path",
           .target = &exported.path,
           .help = "Folder that stoker-export wrote",
           .details =
               "Its files are data: no code of them is executed. The SHA-256 of its "
               "graph.json, which has those of the others, is part of the run: resuming with "
               "another folder requires --allow-model-change. Its location does not matter.",
           .is_required = true,
           .example = "my_model"}};
}

// ---- all models ---------------------------------------------------------------------------------

Fields key_mapping_fields(KeyMapping& mapping) {
  return {{.name = "from",
           .target = &mapping.from,
           .help = "Pattern of tensor names in the file",
           .is_required = true,
           .example = "\"module.*\""},
          {.name = "to",
           .target = &mapping.to,
           .help = "Name in the model; each * is replaced by what the * of from matched",
           .is_required = true,
           .example = "\"*\""}};
}

Fields pretrained_fields(PretrainedConfig& pretrained) {
  return {{.name = "path",
           .target = &pretrained.path,
           .help = "Checkpoint directory, .safetensors file, file of torch.save, or Hugging Face "
                   "folder",
           .details =
               "Files of torch.save are .pt, .pth and .bin. Names and shapes of the tensors "
               "must be those of the model. A Hugging Face folder, for gpt2, llama and bert, has "
               "the settings of the model in config.json; keys of model that are set must "
               "agree.",
           .is_required = true,
           .example = "resnet18.pt"},
          {.name = "key_mapping",
           .target = list<key_mapping_fields>(pretrained.key_mapping),
           .help = "Rules that rename the tensors of the file",
           .details = "The first rule that matches a name is used; names that match none do not "
                      "change. A rule that matches no name is an error.",
           .example = "[{from: \"module.*\", to: \"*\"}]"},
          {.name = "strict",
           .target = &pretrained.strict,
           .help = "Fail if tensors are missing in the file or unexpected",
           .details = "false: missing tensors are initialized randomly, unexpected ones ignored. "
                      "Another shape is always an error."},
          {.name = "exclude",
           .target = &pretrained.exclude,
           .help = "Patterns of tensors that are not loaded but initialized randomly",
           .details = "For a new head. Names are those of the model, after key_mapping. A pattern "
                      "that matches no name is an error.",
           .example = "[\"fc.*\"]"}};
}

Fields lora_fields(LoraConfig& lora) {
  return {
      model_field(
          {.name = "path",
           .target = &lora.path,
           .help = "PEFT folder with the adapter that a new run starts from; null: a new adapter",
           .details =
               "The other keys of lora are read from adapter_config.json, unless all are set, as "
               "in a run's config.yaml; those that are set must agree. The weights are not read "
               "when a run is resumed.",
           .example = "my-adapter"}),
      count_field("r", lora.r, kMaxUnits, "Rank of the matrices"),
      model_field({.name = "lora_alpha",
                   .target = &lora.lora_alpha,
                   .help = "Scale of the adapter: its output is multiplied by lora_alpha / r",
                   .min = 0,
                   .max = kMaxUnits,
                   .exclusive_min = true}),
      model_field({.name = "lora_dropout",
                   .target = &lora.lora_dropout,
                   .help = "Fraction of the adapter's input dropped in training; 0 to 0.99",
                   .min = 0,
                   .max = kMaxDropout}),
      model_field(
          {.name = "target_modules",
           .target = &lora.target_modules,
           .help = "Linear layers with an adapter: names, a regular expression, or all-linear",
           .details =
               "A name stands for every module whose name ends with it, after a dot. A regular "
               "expression must match the complete name, with at most 6 repetitions, not nested. "
               "all-linear: all but the output layer. "
               "Names are those of stoker or of Hugging Face. [] for gpt and gpt2 is qkv "
               "(c_attn), for llama and bert q and v (q_proj, v_proj; query, value); others "
               "require it.",
           .accepts_null = true,
           .accepts_scalar = true,
           .example = "[q_proj, v_proj]"}),
      model_field({.name = "modules_to_save",
                   .target = &lora.modules_to_save,
                   .help = "Modules that are trained completely, and saved with the adapter",
                   .details = "Every module whose name ends with one of these, such as a new head.",
                   .accepts_null = true,
                   .example = "[head]"})};
}

Field num_outputs_field(std::optional<int64_t>& num_classes) {
  return count_field("num_classes", num_classes, kMaxOutputs,
                     "Number of outputs; null: from the data",
                     "null is the number of classes of data.train, or of targets. More than the "
                     "data has is allowed for classes, such as for a pretrained head.");
}

Fields common_fields(ModelConfig& model) {
  return {
      init_field(
          {.name = "init",
           .target = tagged_map<init_fields>(model.init, kInitNames),
           .help = "Initial values of parameters, by patterns of their names",
           .details =
               "Functions of torch.nn.init with their arguments. A pattern applies to the "
               "parameters whose name, or whose name's last part, it matches; the first that "
               "matches counts. A pattern that applies to no parameter is an error. The others "
               "have the initial values of PyTorch's modules. Drawn after those, in the order "
               "of the parameters; pretrained replaces them. Not drawn when a run is "
               "resumed, whose checkpoint has all values.",
           .example = "{weight: {normal: {std: 0.1}}, bias: {constant: 0.1}}"}),
      {.name = "pretrained",
       .target = mapping<pretrained_fields>(model.pretrained),
       .help = "Weights that a new run is initialized from; null: random ones",
       .details = "Not read when a run is resumed, except with lora.",
       .example = "{path: resnet18.pt, exclude: [\"fc.*\"]}"},
      model_field({.name = "lora",
                   .target = mapping<lora_fields>(model.lora),
                   .help = "Train an adapter (LoRA) instead of the pretrained weights; null: train "
                           "the weights",
                   .details = "Requires pretrained, whose weights are not trained, and gpt, gpt2, "
                              "llama, bert, vit or mlp. Keys, defaults and meaning are PEFT's. "
                              "Checkpoints have the adapter alone, with the hash of the "
                              "pretrained weights, which are read again when a run is resumed "
                              "or evaluated.",
                   .example = "{r: 16, lora_alpha: 32, target_modules: all-linear}"}),
      model_field({.name = "freeze",
                   .target = &model.freeze,
                   .help = "Patterns of parameters that are not trained",
                   .details = "A pattern that matches no parameter is an error.",
                   .example = "[\"conv1.*\", \"bn1.*\"]"}),
      model_field({.name = "unfreeze_at_step",
                   .target = &model.unfreeze_at_step,
                   .help = "Number of steps after which frozen parameters are trained; null: "
                           "never",
                   .details = "Requires freeze. optimizer.param_groups can give them their own "
                              "learning rate.",
                   .min = 1,
                   .max = 1e15,
                   .accepts_epochs = true,
                   .example = "10000"})};
}

Fields model_fields(ModelConfig& model) {
  Fields fields = std::visit([](auto& each) { return fields_of(each); }, model.arch);
  if (model.has_num_classes()) fields.push_back(num_outputs_field(model.num_classes));
  for (Field& field : common_fields(model)) fields.push_back(std::move(field));
  return fields;
}

struct NamedModel {
  std::string_view name;
  ModelVariant defaults;
};

void add_resnets(std::vector<NamedModel>& models) {
  constexpr std::array kResnets = {
      std::pair("resnet18"sv, 18),   std::pair("resnet34"sv, 34),   std::pair("resnet50"sv, 50),
      std::pair("resnet101"sv, 101), std::pair("resnet152"sv, 152), std::pair("resnet8"sv, 8),
      std::pair("resnet14"sv, 14),   std::pair("resnet20"sv, 20),   std::pair("resnet32"sv, 32),
      std::pair("resnet44"sv, 44),   std::pair("resnet56"sv, 56)};
  for (const auto& [name, depth] : kResnets) models.push_back({name, ResnetConfig{.depth = depth}});
}

void add_vggs(std::vector<NamedModel>& models) {
  const auto add = [&](std::string_view name, int depth, bool batch_norm) {
    VggConfig vgg;
    vgg.depth = depth;
    vgg.batch_norm = batch_norm;
    models.push_back({name, vgg});
  };
  add("vgg11", 11, false);
  add("vgg11_bn", 11, true);
  add("vgg13", 13, false);
  add("vgg13_bn", 13, true);
  add("vgg16", 16, false);
  add("vgg16_bn", 16, true);
  add("vgg19", 19, false);
  add("vgg19_bn", 19, true);
}

void add_vits(std::vector<NamedModel>& models) {
  const VitConfig base;  // has the sizes of b_16
  VitConfig large;
  large.num_layers = 24;
  large.num_heads = 16;
  large.hidden_dim = 1024;
  const auto add = [&](std::string_view name, VitConfig vit, const char* preset,
                       int64_t patch_size) {
    vit.preset = preset;
    vit.patch_size = patch_size;
    models.push_back({name, std::move(vit)});
  };
  models.push_back({"vit", base});
  add("vit_b_16", base, "b_16", 16);
  add("vit_b_32", base, "b_32", 32);
  add("vit_l_16", large, "l_16", 16);
  add("vit_l_32", large, "l_32", 32);
}

std::vector<NamedModel> make_named_models() {
  std::vector<NamedModel> models = {{"gpt", GptConfig{}},     {"gpt2", Gpt2Config{}},
                                    {"llama", LlamaConfig{}}, {"lstm_lm", LstmLmConfig{}},
                                    {"bert", BertConfig{}},   {"blstm", BlstmConfig{}},
                                    {"mlp", MlpConfig{}},     {"lenet5", Lenet5Config{}}};
  add_resnets(models);
  add_vggs(models);
  models.push_back({"alexnet", AlexnetConfig{}});
  models.push_back({"inception_v3", InceptionV3Config{}});
  add_vits(models);
  models.push_back({"captioner", CaptionerConfig{}});
  models.push_back({"sequential", SequentialConfig{}});
  models.push_back({"plugin", PluginConfig{}});
  models.push_back({"exported", ExportedConfig{}});
  return models;
}

constexpr std::string_view kExportInstead =
    "was removed; export the Python module with stoker-export, and set name: exported and path to "
    "the folder (docs/models.md#exported)";
constexpr RemovedName kRemovedModels[] = {{"compiled", kExportInstead},
                                          {"torchscript", kExportInstead}};

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> models = make_named_models();
  return models;
}

std::vector<std::string_view> keys_of(size_t name) {
  ModelConfig example;
  example.arch = named_models()[name].defaults;
  std::vector<std::string_view> keys;
  for (const Field& field : model_fields(example)) keys.push_back(field.name);
  return keys;
}

Variants model_variants(ModelConfig& model) {
  const std::vector<NamedModel>& models = named_models();
  const auto selected = std::ranges::find(models, model.name(), &NamedModel::name);
  Variants variants{
      .discriminator = "name",
      .noun = "model",
      .names = {},
      .selected = selected == models.end() ? 0 : static_cast<size_t>(selected - models.begin()),
      .select = [&model](size_t name) { model.arch = named_models()[name].defaults; },
      .keys = keys_of,
      .help = "Name of the model",
      .details =
          "gpt, gpt2, llama, lstm_lm: language models: decoder-only transformers, of which gpt2 "
          "and llama (also Mistral, Qwen2 and Qwen3) are those of Hugging Face, and an LSTM. "
          "bert: an encoder of token sequences with labels. blstm: "
          "bidirectional LSTM, for sequences of vectors or of tokens with labels. mlp: fully "
          "connected layers, for any input. lenet5: for small images. resnet8, 14, 20, 32, 44, 56: "
          "for small images such as CIFAR's. resnet18, 34, 50, 101, 152, vgg11, 13, 16, 19, each "
          "vgg also with _bn (batch normalization), alexnet, inception_v3, vit and its presets "
          "vit_b_16, vit_b_32, vit_l_16, vit_l_32: torchvision's models, for images. captioner: an "
          "image encoder and a "
          "decoder of words. sequential: "
          "declared layer by layer. plugin: a model in a shared object. exported: a Python module "
          "with its loss, as a graph that stoker-export wrote.",
      .removed = kRemovedModels,
      .is_required = true,
      .required_help =
          "set it to the model to train, such as resnet18 for images, gpt for text, "
          "mlp for numbers, or exported for a PyTorch module"};
  for (const NamedModel& each : models) variants.names.push_back(each.name);
  return variants;
}

}  // namespace

Section model_section(ModelConfig& model) {
  return {.key = "model",
          .help = "What is trained, and the weights it is initialized from",
          .fields = model_fields(model),
          .variants = model_variants(model)};
}

}  // namespace stoker::config
