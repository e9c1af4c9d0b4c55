#include "shared/pretrained/peft_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/peft_config.h"

namespace stoker::pretrained {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a bert with two blocks, whose adapter has the matrices A of these modules and these weights.
std::string settings_of(const std::vector<std::string>& adapted,
                        const std::vector<std::string>& saved,
                        config::BertPooling pooling = config::BertPooling::kPooler) {
  config::BertConfig bert;
  bert.num_layers = 2;
  bert.pooling = pooling;
  config::ModelConfig model;
  model.arch = bert;
  std::vector<TensorSpec> tensors;
  for (const std::string& module : adapted)
    tensors.push_back({.name = module + ".lora_A.weight", .shape = {4, 8}});
  for (const std::string& module : saved)
    tensors.push_back({.name = module + ".weight", .shape = {3, 8}});
  const auto text = peft_settings(model, {.path = "base", .r = 4, .lora_alpha = 8}, tensors);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : std::string();
}

std::vector<std::string> targets_of(const std::vector<std::string>& adapted) {
  const auto lora = config::parse_peft_config(settings_of(adapted, {"fc"}), "a.json");
  EXPECT_TRUE(lora.ok()) << lora.status().to_string();
  return lora.ok() ? lora->target_modules : std::vector<std::string>();
}

TEST(PeftSettingsTest, NamesKindsThatAllBlocksHave) {
  EXPECT_THAT(targets_of({"blocks.0.q", "blocks.1.q"}), ElementsAre("attention.self.query"));
  EXPECT_THAT(targets_of({"blocks.1.q"}), ElementsAre("bert.encoder.layer.1.attention.self.query"));
}

// attention.output.dense ends with output.dense.
TEST(PeftSettingsTest, NamesNoOtherModules) {
  EXPECT_THAT(
      targets_of({"blocks.0.down", "blocks.1.down"}),
      ElementsAre("bert.encoder.layer.0.output.dense", "bert.encoder.layer.1.output.dense"));
  EXPECT_THAT(targets_of({"blocks.0.proj", "blocks.1.proj"}),
              ElementsAre("attention.output.dense"));
  EXPECT_THAT(targets_of({"blocks.0.down", "blocks.0.proj", "blocks.1.down", "blocks.1.proj"}),
              ElementsAre("attention.output.dense", "output.dense"));
}

// PEFT requires the weights of the classifier of such a task.
TEST(PeftSettingsTest, HasATaskIfItHasTheClassifier) {
  EXPECT_THAT(settings_of({"blocks.0.q"}, {"fc"}), HasSubstr(R"("task_type":"SEQ_CLS")"));
  EXPECT_THAT(settings_of({"blocks.0.q"}, {"fc"}, config::BertPooling::kNone),
              HasSubstr(R"("task_type":"TOKEN_CLS")"));
  EXPECT_THAT(settings_of({"blocks.0.q"}, {"fc"}, config::BertPooling::kMean),
              HasSubstr(R"("task_type":null)"));
  for (const auto pooling : {config::BertPooling::kPooler, config::BertPooling::kNone})
    EXPECT_THAT(settings_of({"blocks.0.q"}, {"pooler"}, pooling), HasSubstr(R"("task_type":null)"));
}

}  // namespace
}  // namespace stoker::pretrained
