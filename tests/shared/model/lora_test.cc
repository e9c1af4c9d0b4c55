// model.lora: which layers have an adapter, what is trained, and the PEFT folders that are read;
// tests/parity compares the values with PEFT.
#include "shared/model/lora.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/peft.h"
#include "shared/model/load_weights.h"
#include "shared/model/torch_dtype.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

config::ModelConfig small_llama(std::vector<std::string> targets = {}) {
  config::ModelConfig config{.arch = config::LlamaConfig{.num_layers = 2,
                                                         .num_heads = 2,
                                                         .embed_dim = 8,
                                                         .mlp_dim = 12,
                                                         .context_length = 8,
                                                         .vocab_size = 20}};
  config.lora = config::LoraConfig{.r = 2, .target_modules = std::move(targets)};
  return config;
}
config::ModelConfig small_vit(std::vector<std::string> targets) {
  config::VitConfig vit{.num_layers = 1, .num_heads = 2, .hidden_dim = 8};
  vit.patch_size = 4;
  config::ModelConfig config{.arch = vit};
  config.lora = config::LoraConfig{.r = 2, .target_modules = std::move(targets)};
  return config;
}

Result<ModelPtr> try_make(const config::ModelConfig& config) {
  at::set_num_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  const std::vector<TensorSpec> tokens{{"tokens", DType::kI64, {9}}};
  const std::vector<TensorSpec> images{{"input", DType::kF32, {3, 8, 8}},
                                       {"label", DType::kI64, {}}};
  return make_model(config, config.is_language_model() ? tokens : images,
                    config.is_language_model() ? 0 : 10);
}
ModelPtr make(const config::ModelConfig& config) {
  const auto model = try_make(config);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return *model;
}
std::string error_of(const config::ModelConfig& config) {
  return try_make(config).status().message();
}
// Names of the layers with an adapter.
std::vector<std::string> adapted(const config::ModelConfig& config) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(*make(config)))
    if (name.ends_with(checkpoint::kLoraA)) names.emplace_back(checkpoint::module_of(name));
  return names;
}
at::Tensor some_tokens() { return at::arange(16, at::kLong).reshape({2, 8}); }
void set_matrices(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : named_tensors(model)) tensor.add_(at::randn(tensor.sizes()));
}

TEST(LoraTest, AdaptsPeftsDefaultLayers) {
  EXPECT_THAT(adapted(small_llama()),
              ElementsAre("blocks.0.q", "blocks.0.v", "blocks.1.q", "blocks.1.v"));
  config::ModelConfig gpt2 = small_llama();
  gpt2.arch = config::Gpt2Config{
      .num_layers = 1, .num_heads = 2, .embed_dim = 8, .context_length = 8, .vocab_size = 20};
  EXPECT_THAT(adapted(gpt2), ElementsAre("blocks.0.qkv"));
}

TEST(LoraTest, ChoosesLayersByNamesOfEitherSide) {
  EXPECT_THAT(adapted(small_llama({"k", "o_proj"})),
              ElementsAre("blocks.0.k", "blocks.0.proj", "blocks.1.k", "blocks.1.proj"));
  EXPECT_THAT(adapted(small_llama({"blocks.1.up"})), ElementsAre("blocks.1.up"));
  EXPECT_THAT(adapted(small_llama({"0.self_attn.q_proj"})), ElementsAre("blocks.0.q"));
}

TEST(LoraTest, ChoosesLayersByRegularExpressionOfTheWholeName) {
  EXPECT_THAT(adapted(small_llama({"blocks\\.0\\.(up|down)"})),
              ElementsAre("blocks.0.up", "blocks.0.down"));
  EXPECT_THAT(adapted(small_llama({"model\\.layers\\.1\\.mlp\\..*"})),
              ElementsAre("blocks.1.gate", "blocks.1.up", "blocks.1.down"));
  EXPECT_THAT(error_of(small_llama({"0\\.(up|down)"})), HasSubstr("matches no module"));
  EXPECT_THAT(error_of(small_llama({"("})), HasSubstr("'(' is not a regular expression"));
}

TEST(LoraTest, AdaptsAllLinearLayersButTheOutput) {
  EXPECT_THAT(adapted(small_llama({"all-linear"})), SizeIs(14));
  EXPECT_THAT(adapted(small_llama({"all-linear"})), Not(Contains("head")));
  EXPECT_THAT(adapted(small_llama({"head"})), ElementsAre("head"));
  EXPECT_THAT(adapted(small_vit({"all-linear"})),
              UnorderedElementsAre("encoder.layers.encoder_layer_0.self_attention",
                                   "encoder.layers.encoder_layer_0.self_attention.out_proj",
                                   "encoder.layers.encoder_layer_0.mlp.0",
                                   "encoder.layers.encoder_layer_0.mlp.3"));
}

TEST(LoraTest, ReportsWhatCannotHaveAnAdapter) {
  EXPECT_EQ(error_of(small_llama({"query"})),
            "model.lora.target_modules: 'query' matches no module; the linear layers are q, k, v, "
            "proj, gate, up, down, head");
  EXPECT_EQ(error_of(small_llama({"embed_tokens"})),
            "model.lora.target_modules: 'embed_tokens' matches tok, which is not a linear layer; "
            "only those can have an adapter");
  EXPECT_THAT(error_of(small_vit({"conv_proj"})), HasSubstr("conv_proj, which is not a linear"));
  EXPECT_THAT(error_of(small_vit({"out_proj"})),
              HasSubstr("is adapted with the attention it is part of"));
}

TEST(LoraTest, StartsWithTheOutputOfThePretrainedWeights) {
  const ModelPtr model = make(small_llama({"all-linear"}));
  config::ModelConfig plain = small_llama();
  plain.lora.reset();
  const ModelPtr base = make(plain);  // of the same seed
  EXPECT_TRUE(at::equal(model->forward(some_tokens()), base->forward(some_tokens())));
  set_matrices(*model);
  EXPECT_FALSE(at::equal(model->forward(some_tokens()), base->forward(some_tokens())));
}

TEST(LoraTest, TrainsAndSavesTheAdapterAlone) {
  config::ModelConfig config = small_llama({"q"});
  config.lora->modules_to_save = {"head", "model.norm"};
  const ModelPtr model = make(config);
  std::vector<std::string> trained, saved;
  for (const auto& item : model->named_parameters())
    if (item.value().requires_grad()) trained.push_back(item.key());
  for (const auto& [name, tensor] : named_tensors(*model)) saved.push_back(name);
  EXPECT_EQ(trained, saved);
  EXPECT_THAT(saved, UnorderedElementsAre("blocks.0.q.lora_A.weight", "blocks.0.q.lora_B.weight",
                                          "blocks.1.q.lora_A.weight", "blocks.1.q.lora_B.weight",
                                          "head.weight", "ln.weight"));
  EXPECT_EQ(pretrained_tensors(*model).size() + 4, model->named_parameters().size());
}

TEST(LoraTest, RejectsModulesToSaveThatAreMissingOrTied) {
  config::ModelConfig config = small_llama();
  config.lora->modules_to_save = {"score"};
  EXPECT_THAT(error_of(config), HasSubstr("model.lora.modules_to_save: 'score' matches no module"));
  std::get<config::LlamaConfig>(config.arch).tie_weights = true;
  config.lora->modules_to_save = {"embed_tokens"};
  EXPECT_THAT(error_of(config), HasSubstr("is tied with the output layer"));
}

TEST(LoraTest, RejectsPartOfAdaptedAttentionInModulesToSave) {
  config::ModelConfig config = small_vit({"self_attention"});
  config.lora->modules_to_save = {"out_proj"};
  EXPECT_THAT(error_of(config), HasSubstr("self_attention.out_proj' is adapted with "));
  config.lora->modules_to_save = {"heads.head"};
  EXPECT_EQ(error_of(config), "");
}

// They can come from a foreign file.
TEST(LoraTest, RejectsRegularExpressionsThatTakeLong) {
  EXPECT_THAT(error_of(small_llama({"((.*)*)*x"})), HasSubstr("repeats a group"));
  EXPECT_THAT(error_of(small_llama({"(a|a)+x"})), HasSubstr("repeats a group"));
  EXPECT_THAT(error_of(small_llama({"(?:a?){9}x"})), HasSubstr("repeats a group"));
  EXPECT_THAT(error_of(small_llama({".*.*.*.*.*.*.*x"})), HasSubstr("more than 6 repetitions"));
  EXPECT_THAT(error_of(small_llama({std::string(500, '(')})), HasSubstr("more than 8 levels"));
  EXPECT_THAT(error_of(small_llama({std::string(2000, '*')})), HasSubstr("longer than 1024"));
  EXPECT_THAT(adapted(small_llama({".*\\.[0-1]\\.(up|down)?[(*+]?"})), SizeIs(4));
}

TEST(LoraTest, DropsInputOfTheAdapterInTrainingOnly) {
  config::ModelConfig config = small_llama({"all-linear"});
  config.lora->lora_dropout = 0.5;
  const ModelPtr model = make(config);
  set_matrices(*model);
  EXPECT_FALSE(at::equal(model->forward(some_tokens()), model->forward(some_tokens())));
  model->eval();
  EXPECT_TRUE(at::equal(model->forward(some_tokens()), model->forward(some_tokens())));
}

// The recomputation must drop the same elements.
TEST(LoraTest, HasTheSameGradientsWithActivationCheckpointing) {
  std::vector<at::Tensor> gradients;
  for (const bool checkpointing : {false, true}) {
    config::ModelConfig config = small_llama({"all-linear"});
    config.lora->lora_dropout = 0.5;
    std::get<config::LlamaConfig>(config.arch).activation_checkpointing = checkpointing;
    const ModelPtr model = make(config);
    set_matrices(*model);
    model->forward(some_tokens()).sum().backward();
    gradients.push_back(model->named_parameters()["blocks.0.q.lora_A.weight"].grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
}

TEST(LoraTest, HasTheSameGradientsOfVitWithActivationCheckpointing) {
  std::vector<at::Tensor> gradients;
  for (const bool checkpointing : {false, true}) {
    config::ModelConfig config = small_vit({"all-linear"});
    config.init = {{"heads.head.weight", config::NormalInit()}};  // 0 by default
    config.lora->lora_dropout = 0.5;
    std::get<config::VitConfig>(config.arch).activation_checkpointing = checkpointing;
    const ModelPtr model = make(config);
    set_matrices(*model);
    model->forward(at::rand({2, 3, 8, 8})).sum().backward();
    gradients.push_back(
        model->named_parameters()["encoder.layers.encoder_layer_0.mlp.0.lora_A.weight"].grad());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  EXPECT_GT(gradients[0].abs().max().item<double>(), 0);
}

TEST(LoraTest, HashesThePretrainedWeights) {
  const ModelPtr model = make(small_llama());
  const std::string digest = base_digest(*model);
  set_matrices(*model);
  EXPECT_EQ(base_digest(*model), digest);
  const at::NoGradGuard no_grad;
  model->named_parameters()["blocks.1.up.weight"].view({-1})[5].add_(1);
  EXPECT_NE(base_digest(*model), digest);
}

class LoraFilesTest : public testing::Test {
 protected:
  using Tensors = std::vector<std::pair<std::string, at::Tensor>>;
  void write(const std::string& file, const Tensors& tensors) const {
    std::vector<checkpoint::OwnedTensor> owned;
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = tensor.detach().contiguous();
      const auto* const bytes = static_cast<const std::byte*>(whole.data_ptr());
      owned.push_back({to_tensor_spec(name, whole), {bytes, bytes + whole.nbytes()}});
    }
    ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), file,
                                              checkpoint::views_of(owned), {})
                    .ok());
  }
  // An adapter of one layer of model mlp.
  void SetUp() override {
    config_.arch = config::MlpConfig{.hidden_sizes = {4}};
    config_.pretrained = config::PretrainedConfig{.path = scratch_ / "base"};
    config_.lora = config::LoraConfig{.path = scratch_.path(), .r = 1, .target_modules = {"0"}};
    const auto model =
        make_model(config_, {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}}, 2);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    model_ = *model;
  }
  Status load_base() { return load_pretrained(*model_, config_, mapping_); }

  test::TemporaryDirectory scratch_;
  config::ModelConfig config_;
  ModelPtr model_;
  pretrained::StateDictMapping mapping_;
};

const std::string kPeftA = "base_model.model.0.lora_A.weight",
                  kPeftB = "base_model.model.0.lora_B.weight";

TEST_F(LoraFilesTest, ReadsAdapterOfAnyLayer) {
  const at::Tensor a = at::randn({1, 3}), b = at::randn({4, 1});
  write("adapter_model.safetensors", {{kPeftA, a}, {kPeftB, b}});
  const Status status = load_adapter(*model_, config_);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(at::equal(model_->named_parameters()["0.lora_A.weight"], a));
  EXPECT_TRUE(at::equal(model_->named_parameters()["0.lora_B.weight"], b));
}

TEST_F(LoraFilesTest, ReportsEveryDifferenceOfAnAdapterAndLoadsNothing) {
  write("adapter_model.safetensors",
        {{kPeftA, at::randn({2, 3})}, {"base_model.model.2.lora_A.weight", at::randn({1, 4})}});
  const at::Tensor before = model_->named_parameters()["0.lora_A.weight"].detach().clone();
  const Status status = load_adapter(*model_, config_);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("expected 0.lora_A.weight F32 [1, 3]"));
  EXPECT_THAT(status.message(), HasSubstr("unexpected base_model.model.2.lora_A.weight"));
  EXPECT_THAT(status.message(), HasSubstr("missing 0.lora_B.weight F32 [4, 1]"));
  EXPECT_TRUE(at::equal(model_->named_parameters()["0.lora_A.weight"], before));
}

TEST_F(LoraFilesTest, ReportsTensorThatTheFileHasTwice) {
  config_.arch = config::VitConfig{.num_layers = 1, .num_heads = 2, .hidden_dim = 8};
  std::get<config::VitConfig>(config_.arch).patch_size = 4;
  config_.lora->target_modules = {"self_attention"};
  const auto model =
      make_model(config_, {{"input", DType::kF32, {3, 8, 8}}, {"label", DType::kI64, {}}}, 10);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const std::string attention = "base_model.model.encoder.layers.encoder_layer_0.self_attention.";
  write("adapter_model.safetensors",
        {{attention + "base_layer.out_proj.lora_A.weight", at::randn({1, 8})},
         {attention + "out_proj.lora_A.weight", at::randn({1, 8})}});
  EXPECT_THAT(load_adapter(**model, config_).message(), HasSubstr("a second time"));
}

TEST_F(LoraFilesTest, ReportsMissingAdapter) {
  EXPECT_THAT(load_adapter(*model_, config_).message(), HasSubstr("adapter_model.safetensors"));
}

TEST_F(LoraFilesTest, RequiresEveryWeightThatIsNotTrained) {
  const Tensors body{{"0.weight", at::randn({4, 3})}, {"0.bias", at::randn({4})}};
  write("base", body);
  config_.pretrained->exclude = {"2.*"};
  EXPECT_THAT(
      load_base().message(),
      HasSubstr("'2.bias' is neither (of 2); add its module to model.lora.modules_to_save"));
  config_.lora->modules_to_save = {"2"};
  const auto model =
      make_model(config_, {{"input", DType::kF32, {3}}, {"label", DType::kI64, {}}}, 2);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  const Status status = load_pretrained(**model, config_, mapping_);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace stoker::model
