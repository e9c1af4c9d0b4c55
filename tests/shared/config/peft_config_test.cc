#include "shared/config/peft_config.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kAdapter =
    R"({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "lora_dropout": 0.1, "bias": "none",
        "target_modules": ["v_proj", "q_proj"], "modules_to_save": null, "use_dora": false,
        "rank_pattern": {}, "init_lora_weights": true, "base_model_name_or_path": "x")";

std::string adapter_with(const std::string& more) { return kAdapter + more + "}"; }
std::string error_of(const std::string& more) {
  return parse_peft_config(adapter_with(more), "a.json").status().message();
}

TEST(PeftConfigTest, ReadsSettings) {
  const auto lora = parse_peft_config(adapter_with(""), "a.json");
  ASSERT_TRUE(lora.ok()) << lora.status().to_string();
  EXPECT_EQ(*lora, (LoraConfig{.path = {},
                               .r = 4,
                               .lora_alpha = 16,
                               .lora_dropout = 0.1,
                               .target_modules = {"q_proj", "v_proj"},
                               .modules_to_save = {}}));
}

TEST(PeftConfigTest, ReadsWhatItWrites) {
  const LoraConfig lora{.path = {},
                        .r = 3,
                        .lora_alpha = 4.5,
                        .lora_dropout = 0.25,
                        .target_modules = {"attn.c_attn"},
                        .modules_to_save = {"transformer.ln_f"}};
  const std::string text =
      format_peft_config(lora, {.base = "b", .task_type = "CAUSAL_LM", .fan_in_fan_out = true});
  EXPECT_THAT(text, HasSubstr(R"("task_type":"CAUSAL_LM")"));
  const auto read = parse_peft_config(text, "a.json");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, lora);
}

TEST(PeftConfigTest, RejectsFieldsThatChangeTheResult) {
  EXPECT_THAT(error_of(R"(, "use_dora": true)"),
              HasSubstr("'use_dora' is not supported, got true"));
  EXPECT_THAT(error_of(R"(, "rank_pattern": {"q": 2})"), HasSubstr("'rank_pattern'"));
  EXPECT_THAT(error_of(R"(, "layers_to_transform": [1])"), HasSubstr("'layers_to_transform'"));
  EXPECT_THAT(error_of(R"(, "later_field": 1)"), HasSubstr("'later_field' is not supported"));
  EXPECT_THAT(error_of(R"(, "bias": "all")"), HasSubstr("'bias' must be none"));
  EXPECT_THAT(error_of(R"(, "peft_type": "IA3")"), HasSubstr("'peft_type' must be LORA"));
  EXPECT_THAT(error_of(R"(, "init_lora_weights": "pissa")"), HasSubstr("'pissa' is not supported"));
}

TEST(PeftConfigTest, RejectsInvalidFields) {
  EXPECT_THAT(error_of(R"(, "r": 0)"), HasSubstr("a.json: 'r' must be a number from 1"));
  EXPECT_THAT(error_of(R"(, "r": 1.5)"), HasSubstr("'r' must be an integer"));
  EXPECT_THAT(error_of(R"(, "lora_alpha": "x")"), HasSubstr("'lora_alpha' must be a number"));
  EXPECT_THAT(error_of(R"(, "target_modules": [1])"), HasSubstr("must be a list of names"));
  EXPECT_THAT(parse_peft_config("{}", "a.json").status().message(),
              HasSubstr("'peft_type' is missing"));
  EXPECT_THAT(parse_peft_config("[", "a.json").status().message(), HasSubstr("not JSON"));
}

TEST(PeftConfigTest, HasOneClassifier) {
  const auto saved = [](const std::string& more) {
    return parse_peft_config(adapter_with(more), "a.json")->modules_to_save;
  };
  for (const std::string type : {"SEQ_CLS", "TOKEN_CLS"})
    EXPECT_THAT(saved(R"(, "modules_to_save": ["classifier", "score", "tok"], "task_type": ")" +
                      type + "\""),
                ElementsAre("classifier", "tok"));
  EXPECT_THAT(saved(R"(, "modules_to_save": ["score"], "task_type": "SEQ_CLS")"),
              ElementsAre("score"));
  EXPECT_THAT(saved(R"(, "modules_to_save": ["classifier", "score"], "task_type": null)"),
              ElementsAre("classifier", "score"));
}

class PeftFolderTest : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(scratch_ / "adapter_config.json") << adapter_with(""); }
  std::string text(const std::string& more = "") const {
    return "data: {train: {format: text, path: a}}\nmodel: {name: llama, pretrained: {path: "
           "w.safetensors}, lora: {path: " +
           scratch_.path() + more + "}}\n";
  }
  stoker::test::TemporaryDirectory scratch_;
};

TEST_F(PeftFolderTest, GivesTheSettingsThatTheConfigurationLacks) {
  const LoraConfig lora = *test::valid_config(text(", lora_dropout: 0.5")).model.lora;
  EXPECT_EQ(lora.r, 4);
  EXPECT_EQ(lora.lora_alpha, 16);
  EXPECT_EQ(lora.lora_dropout, 0.5);
  EXPECT_THAT(lora.target_modules, ElementsAre("q_proj", "v_proj"));
}

TEST_F(PeftFolderTest, ReportsAllSettingsThatDiffer) {
  EXPECT_THAT(test::errors_of(text(", r: 8, target_modules: [q_proj]")),
              ElementsAre(HasSubstr(
                  "other settings: r is 8, but 4 in the file; target_modules is [q_proj], but "
                  "[q_proj, v_proj] in the file; remove these keys of model.lora")));
}

TEST_F(PeftFolderTest, AcceptsSettingsThatAgree) {
  EXPECT_THAT(test::errors_of(text(", r: 4, target_modules: [v_proj, q_proj]")), IsEmpty());
  for (const char* const unset : {"null", "[]"}) {
    const std::string more =
        std::string(", r: 4, lora_alpha: 16, lora_dropout: 0, target_modules: ") + unset +
        ", modules_to_save: " + unset;
    EXPECT_THAT(test::valid_config(text(more)).model.lora->target_modules,
                ElementsAre("q_proj", "v_proj"));
  }
}

TEST_F(PeftFolderTest, IsNotReadIfTheConfigurationHasAllSettings) {
  std::filesystem::remove(scratch_ / "adapter_config.json");
  EXPECT_THAT(test::errors_of(text()), ElementsAre(HasSubstr("adapter_config.json")));
  EXPECT_THAT(test::errors_of(text(", r: 8, lora_alpha: 8, lora_dropout: 0, target_modules: [q], "
                                   "modules_to_save: []")),
              IsEmpty());
}

TEST(LoraSettingsTest, RequiresPretrainedWeightsAndLinearLayers) {
  const std::string text = "data: {train: {format: text, path: a}}\n";
  EXPECT_THAT(test::errors_of(text + "model: {name: gpt, lora: {}}\n"),
              ElementsAre(HasSubstr("model.lora: requires model.pretrained")));
  EXPECT_THAT(test::errors_of(text + "model: {name: lstm_lm, lora: {}}\n"),
              ElementsAre(HasSubstr("model.lora: is not supported by model lstm_lm")));
  EXPECT_THAT(
      test::errors_of("data: {train: {format: cifar10, path: a}}\ntask: {name: classification}\n"
                      "model: {name: vit, pretrained: {path: w.pt}, lora: {r: 2}}\n"),
      ElementsAre(HasSubstr("model.lora.target_modules: is required for model vit")));
}

TEST(LoraSettingsTest, AcceptsOnePatternOrAList) {
  const auto targets = [](const std::string& value) {
    return test::valid_config(
               "data: {train: {format: text, path: a}}\nmodel: {name: gpt, pretrained: {path: "
               "w.pt}, lora: {target_modules: " +
               value + "}}\n")
        .model.lora->target_modules;
  };
  EXPECT_THAT(targets("all-linear"), ElementsAre("all-linear"));
  EXPECT_THAT(targets("[qkv, up]"), ElementsAre("qkv", "up"));
}

TEST(LoraSettingsTest, RejectsLayerDecayOfModelsWithoutLayers) {
  EXPECT_THAT(
      test::errors_of("data: {train: {format: cifar10, path: a}}\ntask: {name: classification}\n"
                      "model: {name: mlp}\noptimizer: {layer_decay: 0.5}\n"),
      ElementsAre(HasSubstr("optimizer.layer_decay: is not supported by model mlp")));
}

}  // namespace
}  // namespace stoker::config
