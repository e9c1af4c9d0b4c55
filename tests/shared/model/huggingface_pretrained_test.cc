// model.pretrained.path with a Hugging Face folder: every tensor finds its place, one at a time.
#include <algorithm>
#include <filesystem>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/huggingface.h"
#include "shared/config/huggingface_config.h"
#include "shared/model/load_weights.h"
#include "shared/model/torch_dtype.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/shared/model/peak_memory.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

using Weights = std::vector<std::pair<std::string, at::Tensor>>;  // by the names of transformers

config::Gpt2Config tiny_gpt2() {
  return {.num_layers = 2, .num_heads = 2, .embed_dim = 8, .context_length = 8, .vocab_size = 20};
}
config::LlamaConfig tiny_llama() {
  return {.num_layers = 2,
          .num_heads = 2,
          .num_key_value_heads = 1,
          .embed_dim = 8,
          .mlp_dim = 12,
          .context_length = 8,
          .vocab_size = 20};
}

class HuggingFacePretrainedTest : public testing::Test {
 protected:
  void start(config::ModelVariant arch) {
    config_.arch = std::move(arch);
    config_.pretrained = config::PretrainedConfig{.path = scratch_.path()};
    const auto made = make_model(config_, {{"tokens", DType::kI64, {9}}}, 0);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    model_ = *made;
    const auto json = config::format_huggingface_config(config_.arch);
    ASSERT_TRUE(json.ok()) << json.status().to_string();
    test::write_whole(scratch_ / "config.json", *json);
  }

  // Random values for every tensor of the model.
  Weights random_weights() {
    const auto* const names = checkpoint::HuggingFaceNames::find(config_.name());
    Weights weights;
    for (const auto& [name, tensor] : named_tensors(*model_)) {
      const auto theirs = names->from_stoker(name);
      EXPECT_TRUE(theirs) << name;
      std::vector<int64_t> shape = tensor.sizes().vec();
      if (theirs->is_transposed) std::ranges::reverse(shape);
      weights.emplace_back(theirs->name, at::randn(shape));
    }
    return weights;
  }
  void write_file(const std::string& file, const Weights& weights) {
    std::vector<checkpoint::OwnedTensor> tensors;
    for (const auto& [name, tensor] : weights) {
      const at::Tensor whole = tensor.contiguous();
      const auto* const bytes = static_cast<const std::byte*>(whole.data_ptr());
      tensors.push_back({to_tensor_spec(name, whole), {bytes, bytes + whole.nbytes()}});
    }
    std::filesystem::remove(scratch_ / file);
    ASSERT_TRUE(checkpoint::write_safetensors(default_file_system(), scratch_.path(), file,
                                              checkpoint::views_of(tensors), {})
                    .ok());
  }
  Status load() { return load_pretrained(*model_, config_, mapping_); }
  Status load(const Weights& weights) {
    write_file("model.safetensors", weights);
    return load();
  }

  at::Tensor parameter(const std::string& name) { return model_->named_parameters()[name]; }
  static at::Tensor& find(Weights& weights, const std::string& name) {
    return std::ranges::find(weights, name, &Weights::value_type::first)->second;
  }
  void expect_loaded(const Weights& weights) {
    const auto* const names = checkpoint::HuggingFaceNames::find(config_.name());
    EXPECT_EQ(mapping_.loaded.size(), weights.size());
    for (const auto& [theirs, tensor] : weights) {
      const auto name = names->to_stoker(theirs);
      EXPECT_TRUE(at::equal(parameter(name->name), name->is_transposed ? tensor.t() : tensor))
          << theirs;
    }
  }

  test::TemporaryDirectory scratch_;
  config::ModelConfig config_;
  ModelPtr model_;
  pretrained::StateDictMapping mapping_;
};

TEST_F(HuggingFacePretrainedTest, LoadsGpt2WithTransposedWeights) {
  start(tiny_gpt2());
  const Weights weights = random_weights();
  const Status status = load(weights);
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_loaded(weights);
  EXPECT_THAT(mapping_.loaded, Contains("blocks.0.qkv.weight F32 [24, 8], from "
                                        "transformer.h.0.attn.c_attn.weight, transposed"));
}

TEST_F(HuggingFacePretrainedTest, LoadsTheModelWithoutItsHeadAndReportsBuffers) {
  start(tiny_gpt2());
  Weights weights = random_weights();
  for (auto& [name, tensor] : weights) name = name.substr(std::string("transformer.").size());
  Weights with_buffers = weights;
  with_buffers.emplace_back("h.0.attn.bias", at::zeros({1, 1, 8, 8}));
  const Status status = load(with_buffers);
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_loaded(weights);
  EXPECT_THAT(mapping_.unexpected, Contains("h.0.attn.bias F32 [1, 1, 8, 8], not used, ignored"));
}

TEST_F(HuggingFacePretrainedTest, LoadsShardsInBf16) {
  config::LlamaConfig qwen = tiny_llama();
  qwen.qk_norm = true;
  start(qwen);
  Weights weights = random_weights(), first, second;
  std::string map;
  for (auto& [name, tensor] : weights) {
    const bool is_first = first.size() < 7;
    tensor = tensor.to(at::kBFloat16).to(at::kFloat);
    (is_first ? first : second).emplace_back(name, tensor.to(at::kBFloat16));
    map += (map.empty() ? "\"" : ", \"") + name + "\": \"model-0000" + (is_first ? "1" : "2") +
           "-of-00002.safetensors\"";
  }
  write_file("model-00001-of-00002.safetensors", first);
  write_file("model-00002-of-00002.safetensors", second);
  test::write_whole(scratch_ / "model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
  const Status status = load();
  ASSERT_TRUE(status.ok()) << status.to_string();
  expect_loaded(weights);
}

TEST_F(HuggingFacePretrainedTest, LoadsTiedWeightsThatAreStoredOnceOrTwice) {
  config::LlamaConfig tied = tiny_llama();
  tied.tie_weights = true;
  start(tied);
  const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
  Weights once = random_weights(), twice = once, of_head = once;
  ASSERT_TRUE(load(once).ok());
  expect_loaded(once);
  twice.emplace_back(head, find(twice, embedding));
  const Status status = load(twice);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_THAT(mapping_.loaded, Contains("tok.weight F32 [20, 8], again from lm_head.weight"));
  std::ranges::find(of_head, embedding, &Weights::value_type::first)->first = head;
  find(of_head, head) = at::randn({20, 8});
  ASSERT_TRUE(load(of_head).ok());
  EXPECT_TRUE(at::equal(parameter("tok.weight"), find(of_head, head)));
  find(twice, head) = at::randn({20, 8});
  EXPECT_THAT(load(twice).message(),
              HasSubstr("'lm_head.weight' differs from the embedding, with which it is tied; set "
                        "tie_word_embeddings in config.json to false"));
  find(twice, head) = at::randn({20, 9});
  EXPECT_THAT(load(twice).message(), HasSubstr("lm_head.weight F32 [20, 9] and "
                                               "model.embed_tokens.weight F32 [20, 8], which are "
                                               "tied"));
}

TEST_F(HuggingFacePretrainedTest, NeedsTheHeadOfAnUntiedModel) {
  start(tiny_llama());
  Weights weights = random_weights();
  std::erase_if(weights, [](const auto& each) { return each.first == "lm_head.weight"; });
  EXPECT_THAT(load(weights).message(), HasSubstr("missing head.weight F32 [20, 8]"));
}

TEST_F(HuggingFacePretrainedTest, RejectsTensorsOfAnotherShapeOrDtypeAndUnknownOnes) {
  start(tiny_gpt2());
  Weights weights = random_weights();
  const std::string name = "transformer.h.1.mlp.c_fc.weight";
  find(weights, name) = at::randn({32, 8});  // as nn.Linear has it
  EXPECT_THAT(load(weights).message(),
              HasSubstr("has " + name +
                        " F32 [32, 8], expected blocks.1.up.weight F32 [32, 8], "
                        "transposed"));
  find(weights, name) = at::zeros({8, 32}, at::kInt);
  EXPECT_THAT(load(weights).message(), HasSubstr("has " + name + " I32 [8, 32]"));
  find(weights, name) = at::randn({8, 32});
  weights.emplace_back("score.weight", at::randn({2, 8}));
  EXPECT_THAT(load(weights).message(), HasSubstr("unexpected score.weight F32 [2, 8]"));
  config_.pretrained->exclude = {"score.*"};
  EXPECT_TRUE(load(weights).ok());
}

TEST_F(HuggingFacePretrainedTest, RejectsATensorUnderTwoNames) {
  start(tiny_gpt2());
  Weights weights = random_weights();
  weights.emplace_back("wpe.weight", at::randn({8, 8}));
  EXPECT_THAT(load(weights).message(),
              HasSubstr("'transformer.wpe.weight' and 'wpe.weight' are both mapped to "
                        "'pos.weight'"));
}

TEST_F(HuggingFacePretrainedTest, AppliesKeyMappingBeforeItsNames) {
  start(tiny_gpt2());
  Weights weights = random_weights();
  std::ranges::find(weights, "transformer.ln_f.bias", &Weights::value_type::first)->first = "shift";
  config_.pretrained->key_mapping = {{.from = "shift", .to = "ln.bias"}};
  ASSERT_TRUE(load(weights).ok());
  EXPECT_TRUE(at::equal(parameter("ln.bias"), find(weights, "shift")));
}

TEST_F(HuggingFacePretrainedTest, MustHaveTheSettingsOfTheModel) {
  start(tiny_llama());
  const Weights weights = random_weights();
  std::get<config::LlamaConfig>(config_.arch).rope_theta = 5e5;
  const at::Tensor before = parameter("tok.weight").detach().clone();
  EXPECT_THAT(load(weights).message(),
              AllOf(HasSubstr("model.pretrained.path"), HasSubstr("model.rope_theta is 5e+05, but "
                                                                  "rope_theta 10000")));
  EXPECT_TRUE(at::equal(parameter("tok.weight"), before));
  config_.arch = config::GptConfig();
  EXPECT_THAT(load(weights).message(), HasSubstr("has model_type 'llama', but model.name is gpt"));
  test::write_whole(scratch_ / "config.json", R"({"model_type": "t5"})");
  EXPECT_THAT(load(weights).message(), HasSubstr("'model_type' \"t5\" is not supported"));
}

// In addition to the model, at most one tensor is in memory, converted or transposed.
TEST_F(HuggingFacePretrainedTest, KeepsOneTensorInMemory) {
  for (const bool is_gpt2 : {false, true}) {
    if (is_gpt2)
      start(config::Gpt2Config{.num_layers = 3,
                               .num_heads = 2,
                               .embed_dim = 128,
                               .context_length = 8,
                               .vocab_size = 50});
    else
      start(tiny_llama());
    write_file("model.safetensors", random_weights());
    const auto peak = std::make_shared<PeakMemory>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, peak);
      ASSERT_TRUE(load().ok());
    }
    int64_t largest = 0;
    for (const auto& [name, tensor] : named_tensors(*model_))
      largest = std::max(largest, static_cast<int64_t>(tensor.nbytes()));
    EXPECT_LE(peak->max_bytes(), largest * 6 / 5);
    if (!is_gpt2) {
      EXPECT_EQ(peak->max_bytes(), 0) << "F32 is read in place";
    }
  }
}

}  // namespace
}  // namespace stoker::model
