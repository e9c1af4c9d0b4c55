// optimizer.layer_decay: the factors of timm's param_groups_layer_decay.
#include "daemon/train/layer_decay.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "daemon/train/optimizer.h"
#include "daemon/train/parameter_kinds.h"

namespace stoker::train {
namespace {

using testing::HasSubstr;

model::ModelPtr make(const config::ModelConfig& config, const std::vector<TensorSpec>& sample) {
  const auto model = model::make_model(config, sample, 10);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}
model::ModelPtr small_vit() {
  config::VitConfig vit{.num_layers = 3, .num_heads = 2, .hidden_dim = 8};
  vit.patch_size = 4;
  return make({.arch = vit}, {{"input", DType::kF32, {3, 8, 8}}, {"label", DType::kI64, {}}});
}
model::ModelPtr small_gpt2(bool tie_weights) {
  return make({.arch = config::Gpt2Config{.num_layers = 2,
                                          .num_heads = 2,
                                          .embed_dim = 8,
                                          .context_length = 8,
                                          .vocab_size = 20,
                                          .tie_weights = tie_weights}},
              {{"tokens", DType::kI64, {9}}});
}
model::ModelPtr small_bert(config::BertPooling pooling) {
  return make({.arch = config::BertConfig{.num_layers = 2,
                                          .num_heads = 2,
                                          .embed_dim = 8,
                                          .context_length = 8,
                                          .vocab_size = 20,
                                          .pooling = pooling}},
              {{"tokens", DType::kI64, {8}}, {"label", DType::kI64, {}}});
}
LrScales scales_of(const model::Model& model, double decay) {
  const auto scales = layer_lr_scales(model, decay);
  EXPECT_TRUE(scales.ok()) << scales.status().to_string();
  return *scales;
}

// ---- optimizer.param_groups.kind

std::vector<std::string> of_kind(const model::Model& model, config::ParamKind kind) {
  model::NamedTensors parameters;
  for (const auto& each : model.named_parameters())
    parameters.emplace_back(each.key(), each.value());
  const std::set<std::string> embeddings = embedding_parameters(model);
  const ParameterKinds kinds(parameters, embeddings);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters)
    if (kinds.is(kind, name, parameter)) names.push_back(name);
  return names;
}

TEST(ParameterKindsTest, FindsParametersOfGpt2) {
  const auto model = small_gpt2(false);
  EXPECT_THAT(of_kind(*model, config::ParamKind::kEmbedding),
              testing::UnorderedElementsAre("tok.weight", "pos.weight"));
  EXPECT_THAT(of_kind(*model, config::ParamKind::kNorm),
              testing::UnorderedElementsAre(
                  "ln.weight", "ln.bias", "blocks.0.ln1.weight", "blocks.0.ln1.bias",
                  "blocks.0.ln2.weight", "blocks.0.ln2.bias", "blocks.1.ln1.weight",
                  "blocks.1.ln1.bias", "blocks.1.ln2.weight", "blocks.1.ln2.bias"));
  EXPECT_THAT(
      of_kind(*model, config::ParamKind::kBias),
      testing::AllOf(testing::Contains("ln.bias"), testing::Each(testing::EndsWith(".bias"))));
  EXPECT_THAT(of_kind(*model, config::ParamKind::kVector),
              testing::AllOf(testing::Contains("ln.weight"),
                             testing::Not(testing::Contains("tok.weight"))));
}

TEST(ParameterKindsTest, FindsPositionsAndClassTokenOfVit) {
  const auto model = small_vit();
  EXPECT_THAT(of_kind(*model, config::ParamKind::kEmbedding),
              testing::UnorderedElementsAre("class_token", "encoder.pos_embedding"));
  EXPECT_THAT(of_kind(*model, config::ParamKind::kNorm),
              testing::Contains("encoder.layers.encoder_layer_0.ln_1.weight"));
}

TEST(ParameterKindsTest, SelectsGroupTogetherWithName) {
  const auto model = small_gpt2(false);
  model::NamedTensors parameters;
  for (const auto& each : model->named_parameters())
    parameters.emplace_back(each.key(), each.value());
  config::OptimizerConfig config;
  config.param_groups = {
      {.params = "blocks.0.*", .kind = config::ParamKind::kNorm, .weight_decay = 0},
      {.kind = config::ParamKind::kEmbedding, .lr_scale = 0.1}};
  const auto optimizer =
      Optimizer::create(config, {}, parameters, {}, {}, {}, embedding_parameters(*model));
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  ASSERT_EQ((*optimizer)->groups().size(), 3u);
  EXPECT_EQ((*optimizer)->groups()[1].match, "blocks.0.*, kind norm");
  EXPECT_EQ((*optimizer)->groups()[1].num_parameters, 4u);
  EXPECT_EQ((*optimizer)->groups()[2].num_parameters, 2u);
  config.param_groups = {{.params = "tok.*", .kind = config::ParamKind::kNorm}};
  const auto empty = Optimizer::create(config, {}, parameters);
  EXPECT_THAT(empty.status().message(),
              HasSubstr("'tok.*, kind norm' matches no trained parameter"));
}

// The values of timm 1.0.31 for its vit_tiny_patch16_224 with depth 3: pos_embed, blocks.N, norm, head.
TEST(LayerDecayTest, HasTheFactorsOfTimmForVit) {
  const LrScales scales = scales_of(*small_vit(), 0.75);
  EXPECT_EQ(scales.at("class_token"), 0.31640625);
  EXPECT_EQ(scales.at("conv_proj.weight"), 0.31640625);
  EXPECT_EQ(scales.at("encoder.pos_embedding"), 0.31640625);
  EXPECT_EQ(scales.at("encoder.layers.encoder_layer_0.ln_1.weight"), 0.421875);
  EXPECT_EQ(scales.at("encoder.layers.encoder_layer_1.mlp.0.weight"), 0.5625);
  EXPECT_EQ(scales.at("encoder.layers.encoder_layer_2.self_attention.in_proj_weight"), 0.75);
  EXPECT_EQ(scales.at("encoder.ln.bias"), 0.75);
  EXPECT_EQ(scales.at("heads.head.weight"), 1);
}

TEST(LayerDecayTest, CountsTheLayersOfADecoder) {
  const LrScales scales = scales_of(*small_gpt2(false), 0.5);
  EXPECT_EQ(scales.at("tok.weight"), 0.125);
  EXPECT_EQ(scales.at("pos.weight"), 0.125);
  EXPECT_EQ(scales.at("blocks.0.qkv.bias"), 0.25);
  EXPECT_EQ(scales.at("blocks.1.ln1.weight"), 0.5);
  EXPECT_EQ(scales.at("ln.weight"), 0.5);
  EXPECT_EQ(scales.at("head.weight"), 1);
  // Without an output layer, the last block is the last layer.
  const LrScales tied = scales_of(*small_gpt2(true), 0.5);
  EXPECT_EQ(tied.at("blocks.1.down.weight"), 1);
  EXPECT_EQ(tied.at("tok.weight"), 0.25);
}

// As vit, whose class token is among the embeddings: the pooler belongs to the output layer.
TEST(LayerDecayTest, CountsTheLayersOfBert) {
  for (const auto pooling : {config::BertPooling::kPooler, config::BertPooling::kMean}) {
    const auto model = small_bert(pooling);
    const LrScales scales = scales_of(*model, 0.5);
    for (const char* const name : {"tok.weight", "pos.weight", "type.weight", "embed_ln.bias"})
      EXPECT_EQ(scales.at(name), 0.125) << name;
    EXPECT_EQ(scales.at("blocks.0.q.weight"), 0.25);
    EXPECT_EQ(scales.at("blocks.0.ln2.bias"), 0.25);
    EXPECT_EQ(scales.at("blocks.1.down.weight"), 0.5);
    EXPECT_EQ(scales.at("fc.weight"), 1);
    EXPECT_EQ(scales.contains("pooler.bias"), pooling == config::BertPooling::kPooler);
    EXPECT_EQ(scales.size(), model->parameters().size()) << "a parameter without a factor";
  }
  EXPECT_EQ(scales_of(*small_bert(config::BertPooling::kPooler), 0.5).at("pooler.bias"), 1);
}

TEST(LayerDecayTest, RejectsUnknownLayers) {
  const auto mlp = make({.arch = config::MlpConfig{}},
                        {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}});
  EXPECT_THAT(layer_lr_scales(*mlp, 0.5).status().message(),
              HasSubstr("parameter '0.weight' belongs to no known layer"));
}

// One step of SGD without momentum changes a parameter by lr x its factors x the gradient.
TEST(LayerDecayTest, ScalesTheUpdatesTogetherWithParameterGroups) {
  const auto model = small_gpt2(false);
  model::NamedTensors parameters;
  std::map<std::string, at::Tensor> before;
  for (const auto& item : model->named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
    before[item.key()] = item.value().detach().clone();
  }
  config::OptimizerConfig config{.method = config::SgdConfig{.lr = 1, .momentum = 0}};
  config.param_groups = {{.params = "*.bias", .lr_scale = 2, .weight_decay = {}}};
  const LrScales scales = scales_of(*model, 0.5);
  const auto optimizer = Optimizer::create(config, {.max_grad_norm = std::nullopt}, parameters, {},
                                           Optimizer::Shard{}, scales);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  for (const auto& [name, parameter] : parameters) parameter.mutable_grad().fill_(1);
  (*optimizer)->step(0.5);
  for (const auto& [name, parameter] : parameters) {
    const double factor = 0.5 * scales.at(name) * (name.ends_with(".bias") ? 2 : 1);
    const at::Tensor change = before.at(name) - parameter.detach();
    EXPECT_NEAR(change.min().item<double>(), factor, 1e-6) << name;
    EXPECT_NEAR(change.max().item<double>(), factor, 1e-6) << name;
  }
}

// Parameter servers have other parts of a layer: `kind: norm` needs the weight for the bias, and each group has parameters on
// one of them only.
TEST(LayerDecayTest, ScalesTheUpdatesOfPartAsAmongAll) {
  const auto model = small_gpt2(false);
  model::NamedTensors parameters;
  std::map<std::string, at::Tensor> before;
  for (const auto& item : model->named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
    before[item.key()] = item.value().detach().clone();
  }
  config::OptimizerConfig config{.method = config::SgdConfig{.lr = 1, .momentum = 0}};
  config.param_groups = {
      {.params = {}, .kind = config::ParamKind::kNorm, .lr_scale = 2, .weight_decay = {}}};
  const LrScales scales = scales_of(*model, 0.5);
  const std::set<std::string> embeddings = embedding_parameters(*model);
  for (const bool takes_biases : {true, false}) {
    const auto is_own = [&](size_t i) {
      return parameters[i].first.ends_with("bias") == takes_biases;
    };
    const auto optimizer = Optimizer::create(config, {.max_grad_norm = std::nullopt}, parameters,
                                             {}, {}, scales, embeddings, is_own);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    for (const at::Tensor& own : (*optimizer)->parameters()) own.mutable_grad().fill_(1);
    (*optimizer)->step(0.5);
  }
  for (const auto& [name, parameter] : parameters) {
    const bool is_norm = name.find("ln") != std::string::npos;
    const double factor = 0.5 * scales.at(name) * (is_norm ? 2 : 1);
    const at::Tensor change = before.at(name) - parameter.detach();
    EXPECT_NEAR(change.min().item<double>(), factor, 1e-6) << name;
    EXPECT_NEAR(change.max().item<double>(), factor, 1e-6) << name;
  }
}

}  // namespace
}  // namespace stoker::train
