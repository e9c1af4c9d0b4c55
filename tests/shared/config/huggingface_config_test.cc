// config.json of Hugging Face folders: settings, what is not supported, and what must agree.
#include "shared/config/huggingface_config.h"

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGpt2[] =
    R"("model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 16, "n_positions": 32,
       "vocab_size": 300)";
constexpr char kSizes[] =
    R"("num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
       "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": 64,
       "vocab_size": 300)";

std::string object(const std::string& fields, const std::string& more = "") {
  return "{" + fields + (more.empty() ? "" : ", " + more) + "}";
}
std::string of_type(const std::string& type, const std::string& more = "") {
  return object("\"model_type\": \"" + type + "\", " + kSizes, more);
}

template <typename C>
C read_as(const std::string& json) {
  const auto config = parse_huggingface_config(json, "config.json");
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? std::get<C>(config->arch) : C();
}
LlamaConfig llama(const std::string& type, const std::string& more = "") {
  return read_as<LlamaConfig>(of_type(type, more));
}
std::string error_of(const std::string& json) {
  return parse_huggingface_config(json, "config.json").status().message();
}

TEST(HuggingFaceConfigTest, ReadsGpt2) {
  const auto gpt2 = read_as<Gpt2Config>(object(kGpt2, R"("layer_norm_epsilon": 1e-6)"));
  const Gpt2Config expected{.num_layers = 2,
                            .num_heads = 4,
                            .embed_dim = 16,
                            .context_length = 32,
                            .vocab_size = 300,
                            .layer_norm_eps = 1e-6};
  EXPECT_EQ(gpt2, expected);
}

TEST(HuggingFaceConfigTest, ReadsBert) {
  const auto bert = read_as<BertConfig>(
      of_type("bert", R"("type_vocab_size": 3, "layer_norm_eps": 1e-6, "hidden_dropout_prob": 0.2,
                         "attention_probs_dropout_prob": 0, "classifier_dropout": 0.2)"));
  const BertConfig expected{.num_layers = 2,
                            .num_heads = 4,
                            .embed_dim = 16,
                            .mlp_dim = 24,
                            .context_length = 64,
                            .vocab_size = 300,
                            .num_token_types = 3,
                            .pad_token = 0,
                            .layer_norm_eps = 1e-6,
                            .dropout = 0.2,
                            .attention_dropout = 0};
  EXPECT_EQ(bert, expected);
}

TEST(HuggingFaceConfigTest, WritesHeadOfBert) {
  BertConfig bert{.num_layers = 2, .num_heads = 4, .embed_dim = 16};
  const HuggingFaceHead head{.num_labels = 3, .problem_type = "single_label_classification"};
  const auto text = format_huggingface_config(bert, head);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_THAT(*text, HasSubstr(R"("architectures":["BertForSequenceClassification"])"));
  EXPECT_THAT(*text, HasSubstr(R"("id2label":{"0":"LABEL_0","1":"LABEL_1","2":"LABEL_2"})"));
  EXPECT_THAT(*text, HasSubstr(R"("problem_type":"single_label_classification")"));
  bert.mlp_dim = 64;
  EXPECT_EQ(read_as<BertConfig>(*text), bert);
  bert.pooling = BertPooling::kNone;
  EXPECT_THAT(*format_huggingface_config(bert, head),
              HasSubstr(R"("architectures":["BertForTokenClassification"])"));
  bert.pooling = BertPooling::kMean;
  EXPECT_THAT(format_huggingface_config(bert, head).status().message(),
              HasSubstr("transformers has no class for model bert with model.pooling mean"));
}

TEST(HuggingFaceConfigTest, ReadsLlamaAndItsRelatives) {
  LlamaConfig expected{.num_layers = 2,
                       .num_heads = 4,
                       .num_key_value_heads = 2,
                       .embed_dim = 16,
                       .mlp_dim = 24,
                       .context_length = 64,
                       .vocab_size = 300};
  EXPECT_EQ(llama("llama"), expected);
  EXPECT_EQ(llama("mistral", R"("sliding_window": null)"), expected);
  expected.qkv_bias = true;
  EXPECT_EQ(llama("qwen2", R"("use_sliding_window": false, "sliding_window": 8)"), expected);
  expected.proj_bias = expected.mlp_bias = true;
  EXPECT_EQ(llama("llama", R"("attention_bias": true, "mlp_bias": true)"), expected);
  expected.qkv_bias = expected.proj_bias = expected.mlp_bias = false;
  expected.qk_norm = expected.tie_weights = true;
  expected.head_dim = 128;
  EXPECT_EQ(llama("qwen3", R"("tie_word_embeddings": true)"), expected) << "its default head_dim";
}

TEST(HuggingFaceConfigTest, ReadsRopeOfEveryVersion) {
  const RopeScaling linear{.rope_type = RopeType::kLinear, .factor = 2};
  for (const char* const text :
       {R"("rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 2})",
        R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0})",
        R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 2})"}) {
    EXPECT_EQ(llama("llama", text).rope_theta, 500000) << text;
    EXPECT_EQ(llama("llama", text).rope_scaling, linear) << text;
  }
  const RopeScaling llama3{.rope_type = RopeType::kLlama3,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_position_embeddings = 8192};
  EXPECT_EQ(llama("llama",
                  R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                     "high_freq_factor": 4, "original_max_position_embeddings": 8192})")
                .rope_scaling,
            llama3);
  EXPECT_EQ(llama("llama", R"("rope_parameters": {"rope_type": "default"})").rope_scaling,
            std::nullopt);
  EXPECT_EQ(llama("llama", R"("rope_parameters": {"rope_type": "linear", "factor": 2.0},
                              "rope_scaling": {"type": "linear", "factor": 2})")
                .rope_scaling,
            linear);
}

struct Unsupported {
  std::string json, message;
};

TEST(HuggingFaceConfigTest, RejectsWhatChangesTheResult) {
  const std::string gpt2 = kGpt2;
  for (const auto& [json, message] : std::vector<Unsupported>{
           {R"({"model_type": "t5"})",
            "'model_type' \"t5\" is not supported (only gpt2, llama, mistral, qwen2, qwen3, bert, "
            "resnet, vit)"},
           {"{}", "'model_type' null is not supported"},
           {object(gpt2, R"("activation_function": "relu")"),
            "'activation_function' \"relu\" is not supported (only gelu_new, gelu_pytorch_tanh)"},
           {object(gpt2, R"("scale_attn_weights": false)"),
            "'scale_attn_weights' false is not supported (only true)"},
           {of_type("bert", R"("hidden_act": "relu")"),
            "'hidden_act' \"relu\" is not supported (only gelu)"},
           {of_type("bert", R"("position_embedding_type": "relative_key")"),
            "'position_embedding_type' \"relative_key\" is not supported (only \"absolute\")"},
           {of_type("bert", R"("is_decoder": true)"),
            "'is_decoder' true is not supported (only false)"},
           {of_type("llama", R"("hidden_act": "gelu")"),
            "'hidden_act' \"gelu\" is not supported (only silu, swish)"},
           {of_type("llama", R"("quantization_config": {"bits": 4})"),
            "'quantization_config' is not supported"},
           {of_type("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4})"),
            "'rope_scaling' has the type \"yarn\", which is not supported (only default, linear, "
            "llama3)"},
           {of_type("llama", R"("rope_scaling": {"type": "dynamic", "factor": 4})"),
            "has the type \"dynamic\""},
           {of_type("llama", R"("partial_rotary_factor": 0.5)"),
            "'partial_rotary_factor' 0.5 is not supported"},
           {of_type("llama", R"("rope_parameters": {"rope_type": "default"},
                                "rope_scaling": {"type": "linear", "factor": 2})"),
            "'rope_parameters' differs from rope_scaling; remove the wrong one"},
           {of_type("llama", R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 5e5})"),
            "'rope_theta' 10000 differs from that of rope_parameters, 5e+05"},
           {of_type("llama", R"("original_max_position_embeddings": 4096,
                                "rope_scaling": {"rope_type": "llama3", "factor": 8,
                                  "low_freq_factor": 1, "high_freq_factor": 4,
                                  "original_max_position_embeddings": 8192})"),
            "'original_max_position_embeddings' 4096 differs from that of rope_scaling, 8192"},
           {of_type("qwen3", R"("rope_parameters": {"full_attention": {"rope_theta": 5e5}})"),
            "'rope_parameters' has separate settings for layers of type 'full_attention'"},
           {of_type("llama", R"("is_causal": false)"),
            "'is_causal' false is not supported (only true)"},
           {object(gpt2, R"("is_causal": false)"), "'is_causal' false is not supported"},
           {of_type("qwen3", R"("layer_types": ["full_attention", "sliding_attention"])"),
            "'layer_types' has \"sliding_attention\" without a window"},
           {of_type("llama", R"("pad_token_id": 0.5)"),
            "'pad_token_id' must be an integer or null, got 0.5"}})
    EXPECT_THAT(error_of(json), HasSubstr(message)) << json;
}

TEST(HuggingFaceConfigTest, DoesNotSupportValuesAboveItsLimits) {
  for (const auto& [json, message] : std::vector<Unsupported>{
           {of_type("llama", R"("head_dim": 1000001)"),
            "'head_dim' 1000001 is not supported (at most 1000000)"},
           {of_type("llama", R"("head_dim": 9223372036854775808)"), "is not supported (at most"},
           {of_type("llama", R"("rope_theta": 1e13)"),
            "'rope_theta' 1e+13 is not supported (at most 1e+12)"}}) {
    const Status status = parse_huggingface_config(json, "config.json").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(status.message(), HasSubstr(message)) << json;
  }
  const auto longest = read_as<Gpt2Config>(
      R"({"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 16, "n_positions": 10000000,
          "vocab_size": 300})");
  EXPECT_EQ(longest.context_length, 10'000'000);
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a}}\n"
                        "model: {name: gpt2, context_length: 10000000}\n"),
              IsEmpty());
}

TEST(HuggingFaceConfigTest, AcceptsAWindowThatHidesNothing) {
  EXPECT_EQ(llama("mistral", R"("sliding_window": 64)").context_length, 64);
  EXPECT_EQ(llama("mistral").context_length, 64) << "transformers' default is 4096";
}

// Samples of at most a window are computed with full attention.
TEST(HuggingFaceConfigTest, LimitsTheContextToAWindow) {
  EXPECT_EQ(llama("mistral", R"("sliding_window": 32)").context_length, 32);
  const std::string of_qwen = R"("use_sliding_window": true, "sliding_window": 32)";
  EXPECT_EQ(llama("qwen2", of_qwen + R"(, "max_window_layers": 1)").context_length, 32);
  EXPECT_EQ(llama("qwen2", of_qwen + R"(, "max_window_layers": 2)").context_length, 64);
  EXPECT_EQ(llama("qwen2", of_qwen).context_length, 64) << "transformers' default is 28 layers";
  const std::string sliding =
      R"("use_sliding_window": true, "sliding_window": 32, "layer_types": ["full_attention", )";
  EXPECT_EQ(llama("qwen3", sliding + R"("sliding_attention"])").context_length, 32);
  EXPECT_EQ(llama("qwen3", sliding + R"("full_attention"])").context_length, 64);
}

// The class defaults of transformers 5.24 (tests/parity/make_numbers.py): BertConfig has pad_token_id 0, the others None.
// Embedding takes a negative padding_idx from the end.
TEST(HuggingFaceConfigTest, ReadsThePadToken) {
  EXPECT_EQ(read_as<BertConfig>(of_type("bert")).pad_token, 0);
  EXPECT_EQ(read_as<BertConfig>(of_type("bert", R"("pad_token_id": null)")).pad_token,
            std::nullopt);
  for (const char* const type : {"llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_EQ(llama(type).pad_token, std::nullopt) << type;
    EXPECT_EQ(llama(type, R"("pad_token_id": 7)").pad_token, 7) << type;
    EXPECT_EQ(llama(type, R"("pad_token_id": -1)").pad_token, 299) << type;
  }
}

// Of transformers 5.24 (tests/parity/make_numbers.py): MistralConfig has 8, Qwen2Config and Qwen3Config 32; null is
// num_attention_heads, which transformers 4 also did for mistral, where 5.24 has an error.
TEST(HuggingFaceConfigTest, HasTransformersDefaultOfKeyValueHeads) {
  const std::string sizes =
      R"("num_hidden_layers": 2, "num_attention_heads": 64, "hidden_size": 128,
         "intermediate_size": 24, "max_position_embeddings": 64, "vocab_size": 300)";
  const auto heads_of = [&](const std::string& type, const std::string& more = "") {
    return read_as<LlamaConfig>(object("\"model_type\": \"" + type + "\", " + sizes, more))
        .effective_num_key_value_heads();
  };
  EXPECT_EQ(heads_of("llama"), 64);
  EXPECT_EQ(heads_of("mistral"), 8);
  EXPECT_EQ(heads_of("qwen2"), 32);
  EXPECT_EQ(heads_of("qwen3"), 32);
  for (const char* const type : {"llama", "mistral", "qwen2", "qwen3"})
    EXPECT_EQ(heads_of(type, R"("num_key_value_heads": null)"), 64) << type;
}

TEST(HuggingFaceConfigTest, ComparesNumbersByValue) {
  EXPECT_EQ(llama("llama", R"("rope_theta": 10000, "rope_parameters": {"rope_theta": 10000.0})")
                .rope_theta,
            10000);
  EXPECT_EQ(llama("llama", R"("original_max_position_embeddings": 8192.0,
                              "rope_scaling": {"rope_type": "llama3", "factor": 8,
                                "low_freq_factor": 1, "high_freq_factor": 4,
                                "original_max_position_embeddings": 8192})")
                .rope_scaling->original_max_position_embeddings,
            8192);
}

TEST(HuggingFaceConfigTest, RejectsFieldsOfAnotherTypeOrRange) {
  for (const auto& [json, message] : std::vector<Unsupported>{
           {"[", "not JSON"},
           {"[]", "must be a JSON object"},
           {R"({"model_type": "gpt2"})", "'n_layer' is missing"},
           {object(kGpt2, R"("n_inner": 0)"),
            "'n_inner' must be an integer from 1 to 1000000, got 0"},
           {object(kGpt2, R"("n_inner": 1e3)"), "'n_inner' must be an integer"},
           {object(kGpt2, R"("tie_word_embeddings": 1)"),
            "'tie_word_embeddings' must be true or false, got 1"},
           {object(kGpt2, R"("layer_norm_epsilon": 0)"), "'layer_norm_epsilon' must be a number"},
           {R"({"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 16, "n_positions": 32,
              "vocab_size": 300})",
            "'n_embd' is not a multiple of n_head"},
           {of_type("llama", R"("head_dim": 3)"), "'head_dim' must be an even number"},
           {of_type("llama", R"("rope_scaling": 3)"), "'rope_scaling' must be an object or null"},
           {of_type("llama", R"("rope_scaling": {"type": "linear"})"), "'factor' must be a number"},
           {R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 3, "hidden_size": 16, "intermediate_size": 24,
              "max_position_embeddings": 64, "vocab_size": 300})",
            "'num_key_value_heads' does not divide num_attention_heads"}})
    EXPECT_THAT(error_of(json), HasSubstr(message)) << json;
}

TEST(HuggingFaceConfigTest, WritesWhatItReads) {
  Gpt2Config gpt2{.num_layers = 3, .mlp_dim = 100, .layer_norm_eps = 1e-3, .tie_weights = false};
  gpt2.dropout = 0;
  LlamaConfig of_llama{.num_heads = 4,
                       .num_key_value_heads = 2,
                       .embed_dim = 16,
                       .head_dim = 6,
                       .mlp_dim = 24,
                       .rope_theta = 1e6,
                       .rope_scaling = RopeScaling{.rope_type = RopeType::kLlama3, .factor = 8},
                       .rms_norm_eps = 1e-5,
                       .attention_dropout = 0.25};
  std::vector<ModelVariant> models{gpt2, of_llama};
  of_llama.rope_scaling = RopeScaling{.rope_type = RopeType::kLinear, .factor = 3};
  of_llama.qkv_bias = true;
  models.emplace_back(of_llama);  // Qwen2
  of_llama.proj_bias = of_llama.mlp_bias = true;
  models.emplace_back(of_llama);
  of_llama.mlp_bias = false;
  of_llama.qk_norm = true;
  models.emplace_back(of_llama);  // Qwen3
  of_llama.qkv_bias = of_llama.proj_bias = of_llama.qk_norm = false;
  of_llama.embed_dim = 18;
  models.emplace_back(of_llama);  // Mistral
  for (const ModelVariant& model : models) {
    const auto text = format_huggingface_config(model);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const auto read = parse_huggingface_config(*text, "config.json");
    ASSERT_TRUE(read.ok()) << read.status().to_string() << *text;
    EXPECT_TRUE(read->arch == model) << *text;
  }
}

TEST(HuggingFaceConfigTest, NamesSettingsThatNoModelTypeHas) {
  EXPECT_THAT(
      format_huggingface_config(LlamaConfig{.qkv_bias = true, .mlp_bias = true}).status().message(),
      HasSubstr("no model_type of Hugging Face has these settings together: model.qkv_bias true, "
                "proj_bias false, mlp_bias true, qk_norm false"));
  EXPECT_THAT(format_huggingface_config(
                  LlamaConfig{.num_heads = 4, .embed_dim = 18, .head_dim = 4, .mlp_bias = true})
                  .status()
                  .message(),
              HasSubstr("transformers has no model with biases whose model.embed_dim (18) is not a "
                        "multiple of num_heads (4), without model.qk_norm"));
  EXPECT_THAT(
      format_huggingface_config(GptConfig()).status().message(),
      HasSubstr("model gpt has no Hugging Face format (only gpt2, llama, bert, resnet, vit)"));
}

class HuggingFaceFolderTest : public testing::Test {
 protected:
  std::string with(const std::string& model) {
    return "data: {train: {format: text, path: a}}\nmodel: {" + model +
           ", pretrained: {path: " + scratch_.path() + "}}\n";
  }
  void write(const std::string& json) { stoker::test::write_whole(scratch_ / "config.json", json); }
  stoker::test::TemporaryDirectory scratch_;
};

TEST_F(HuggingFaceFolderTest, DeterminesTheSettings) {
  write(of_type("qwen2", R"("attention_dropout": 0.1)"));
  const Config config = valid_config(with("name: llama"));
  LlamaConfig expected = llama("qwen2");
  expected.attention_dropout = 0.1;
  EXPECT_TRUE(config.model.arch == ModelVariant(expected)) << to_yaml(config);
  EXPECT_EQ(config.data.at("train").sequence()->block_size, 64) << "of its context length";
}

TEST_F(HuggingFaceFolderTest, DeterminesAVocabularyOfNull) {
  write(object(kGpt2));
  const Config config = valid_config(with("name: gpt2, vocab_size: null"));
  EXPECT_EQ(config.model.vocab_size(), 300);
}

TEST_F(HuggingFaceFolderTest, MustExistUnlessAllSettingsAreGiven) {
  const auto of_path = [&](const std::string& path) {
    return "data: {train: {format: text, path: a}}\nmodel: {name: gpt2, pretrained: {path: " +
           path + "}}\n";
  };
  EXPECT_THAT(errors_of(of_path(scratch_ / "gone")),
              ElementsAre(HasSubstr("' does not exist, and model lacks settings, which a "
                                    "Hugging Face folder would have; correct the path")));
  EXPECT_THAT(errors_of(of_path(scratch_ / "gone.pt")), IsEmpty()) << "found when it is loaded";
  stoker::test::write_whole(scratch_ / "weights", "");
  EXPECT_THAT(errors_of(of_path(scratch_ / "weights")), IsEmpty());
}

TEST_F(HuggingFaceFolderTest, MustAgreeWithSettingsOfBoth) {
  write(object(kGpt2));
  EXPECT_THAT(errors_of(with("name: gpt2, embed_dim: 16, mlp_dim: 64, num_layers: 2")), IsEmpty());
  EXPECT_THAT(
      errors_of(with("name: gpt2, embed_dim: 20, num_layers: 3, tie_weights: false")),
      ElementsAre(HasSubstr("config.json has other settings: model.num_layers is 3, but n_layer 2; "
                            "model.embed_dim is 20, but n_embd 16; model.tie_weights is false, but "
                            "tie_word_embeddings true; remove these keys of model")));
}

TEST_F(HuggingFaceFolderTest, LeavesDropoutToTheConfiguration) {
  write(object(kGpt2));
  const Config config = valid_config(with("name: gpt2, dropout: 0.3"));
  EXPECT_EQ(std::get<Gpt2Config>(config.model.arch).dropout, 0.3);
  EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok());
}

// What a folder has and stoker does not, the configuration decides.
TEST_F(HuggingFaceFolderTest, NamesTheSettingThatMustDecide) {
  struct Undecided {
    std::string json, model, message, decision;
  };
  for (const auto& [json, model, message, decision] : std::vector<Undecided>{
           {object(kGpt2, R"("attn_pdrop": 0.2)"), "name: gpt2",
            "'resid_pdrop' differs from embd_pdrop or attn_pdrop, which is not supported; set "
            "model.dropout",
            "dropout: 0"},
           {of_type("llama", R"("pad_token_id": 300)"), "name: llama",
            "'pad_token_id' 300 is not below vocab_size (300); set model.pad_token",
            "pad_token: null"}}) {
    write(json);
    EXPECT_THAT(errors_of(with(model)), ElementsAre(HasSubstr(message)));
    const Config config = valid_config(with(model + ", " + decision));
    EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok()) << json;
  }
}

TEST_F(HuggingFaceFolderTest, TakesAShorterContextOfRotaryPositions) {
  write(of_type("mistral", R"("sliding_window": 32)"));
  EXPECT_EQ(valid_config(with("name: llama")).model.context_length(), 32);
  const Config shorter = valid_config(with("name: llama, context_length: 16"));
  EXPECT_EQ(shorter.model.context_length(), 16);
  EXPECT_TRUE(check_huggingface_config(shorter.model, scratch_.path()).ok());
  EXPECT_THAT(errors_of(with("name: llama, context_length: 64")),
              ElementsAre(HasSubstr("model.context_length is 64, but sliding_window 32")));
  write(of_type("llama"));
  EXPECT_EQ(valid_config(with("name: llama, context_length: 16")).model.context_length(), 16);
  EXPECT_THAT(errors_of(with("name: llama, context_length: 65")),
              ElementsAre(HasSubstr("context_length is 65, but max_position_embeddings 64")));
}

TEST_F(HuggingFaceFolderTest, LeavesThePadTokenToTheConfiguration) {
  write(of_type("llama", R"("pad_token_id": 5)"));
  EXPECT_EQ(std::get<LlamaConfig>(valid_config(with("name: llama")).model.arch).pad_token, 5);
  const Config config = valid_config(with("name: llama, pad_token: null"));
  EXPECT_EQ(std::get<LlamaConfig>(config.model.arch).pad_token, std::nullopt);
  EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok());
  EXPECT_THAT(errors_of(with("name: llama, pad_token: 300")),
              ElementsAre(HasSubstr("model.pad_token: must be below model.vocab_size (300)")));
}

TEST_F(HuggingFaceFolderTest, MustBeOfTheModel) {
  write(object(kGpt2));
  EXPECT_THAT(errors_of(with("name: llama")),
              ElementsAre(HasSubstr("config.json has model_type 'gpt2', which is model gpt2; set "
                                    "model.name: gpt2")));
  write("{}");
  EXPECT_THAT(errors_of(with("name: llama")), ElementsAre(HasSubstr("'model_type' null")));
}

// The configuration of a run has all settings, and the folder may be gone or another one.
TEST_F(HuggingFaceFolderTest, IsNotReadIfAllSettingsAreGiven) {
  write(of_type("llama"));
  const Config config = valid_config(with("name: llama"));
  write("not JSON");
  EXPECT_TRUE(valid_config(to_yaml(config)) == config);
}

TEST_F(HuggingFaceFolderTest, IsComparedWhenItIsLoaded) {
  write(of_type("llama"));
  Config config = valid_config(with("name: llama"));
  EXPECT_TRUE(check_huggingface_config(config.model, scratch_.path()).ok());
  std::get<LlamaConfig>(config.model.arch).rope_scaling = RopeScaling{.factor = 2};
  EXPECT_THAT(
      check_huggingface_config(config.model, scratch_.path()).message(),
      HasSubstr("has other settings: model.rope_scaling is {rope_type: linear, factor: 2}, but "
                "rope_scaling null"));
  config.model.arch = MlpConfig();
  EXPECT_THAT(check_huggingface_config(config.model, scratch_.path()).message(),
              HasSubstr("has model_type 'llama', but model.name is mlp; set model.name: llama"));
}

TEST_F(HuggingFaceFolderTest, CannotBeAPipe) {
  ASSERT_EQ(::mkfifo((scratch_ / "config.json").c_str(), 0600), 0);
  EXPECT_THAT(errors_of(with("name: llama")), ElementsAre(HasSubstr("config.json")));
}

}  // namespace
}  // namespace stoker::config::test
