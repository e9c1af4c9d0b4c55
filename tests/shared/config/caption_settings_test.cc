// Settings of image captioning: fields.caption, tokenizer, captioner, unfreeze_at_step.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string captions(const std::string& dataset = "", const std::string& model = "",
                     const std::string& rest = "") {
  return "data: {train: {format: image_list, path: a, fields: {caption: c}, transforms: [resize: "
         "{size: [8, 8]}]" +
         (dataset.empty() ? ", tokenizer: {path: w}" : dataset) +
         "}}\nmodel: {name: captioner, encoder: {name: resnet8}" + model +
         "}\ntask: {name: captioning}\n" + rest;
}

TEST(CaptionSettings, DeriveLengthAndTokenizerOfCaptions) {
  const Config config = valid_config(
      "data: {train: {format: image_list, path: a, fields: {caption: c}, tokenizer: {path: w}, "
      "transforms: [resize: {size: [8, 8]}]}, val: {format: webdataset, path: b, fields: {image: "
      "jpg, caption: txt}, transforms: [resize: {size: [8, 8]}]}}\n"
      "model: {name: captioner, max_length: 9}\ntask: {name: captioning}\n");
  const DatasetConfig& val = config.data.at("val");
  EXPECT_EQ(val.sequence()->max_label_length, 9);
  EXPECT_EQ(val.tokenizer()->value().path, "w");
}

TEST(CaptionSettings, RequireTokenizer) {
  EXPECT_THAT(errors_of(captions(", split: [0.0, 0.5]")),
              ElementsAre(HasSubstr("data.train.tokenizer: is required with fields.caption")));
}

TEST(CaptionSettings, RequireOneTokenizer) {
  const std::string dataset =
      "{format: image_list, path: a, fields: {caption: c}, transforms: [resize: {size: [8, 8]}]";
  const std::string rest =
      "}}\nmodel: {name: captioner, encoder: {name: resnet8}}\ntask: {name: captioning}\n";
  EXPECT_THAT(errors_of("data: {train: " + dataset + ", tokenizer: {path: w}}, val: " + dataset +
                        ", tokenizer: {path: other}" + rest),
              ElementsAre(HasSubstr("data.val.tokenizer: must be that of data.train")));
  EXPECT_THAT(errors_of("data: {train: {concat: [a, b]}, a: " + dataset +
                        ", tokenizer: {path: w}}, b: " + dataset + "}, val: " + dataset +
                        ", tokenizer: {path: other}" + rest),
              ElementsAre(HasSubstr("data.val.tokenizer: must be that of data.a")));
}

TEST(CaptionSettings, RequireModelTaskAndDataThatFit) {
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\nmodel: {name: captioner}\n"
                        "task: {name: captioning}\n"),
              Contains(HasSubstr("data.train.fields.caption: is required for task captioning")));
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\nmodel: {name: resnet8}\n"
                        "task: {name: captioning}\n"),
              Contains(HasSubstr("task.name: captioning requires model captioner")));
  EXPECT_THAT(errors_of("data: {train: {format: cifar10, path: a}}\nmodel: {name: captioner}\n"
                        "task: {name: classification}\n"),
              Contains(HasSubstr("is not supported by model captioner; set captioning")));
}

TEST(CaptionSettings, RejectContradictions) {
  EXPECT_THAT(errors_of(captions(", tokenizer: {path: w}, sequence: {max_label_length: 21}")),
              ElementsAre(HasSubstr("must be at most model.max_length (20), got 21")));
  EXPECT_THAT(errors_of(captions(", tokenizer: {path: w}, sequence: {on_overflow: drop}")),
              ElementsAre(HasSubstr("sequence.on_overflow: must be error or truncate")));
  EXPECT_THAT(errors_of(captions("", ", unfreeze_at_step: 5")),
              ElementsAre(HasSubstr("model.unfreeze_at_step: requires model.freeze")));
  EXPECT_THAT(
      errors_of(captions("", ", decoder: {name: transformer, hidden_size: 10, num_heads: 3}")),
      ElementsAre(HasSubstr("model.decoder.hidden_size: must be a multiple of")));
}

TEST(CaptionSettings, RequireBlocksForActivationCheckpointing) {
  const std::string checkpointing = ", activation_checkpointing: true";
  EXPECT_THAT(
      errors_of(captions("", checkpointing)),
      ElementsAre(HasSubstr("model.activation_checkpointing: requires transformer blocks")));
  for (const std::string blocks :
       {"{name: resnet8}, decoder: {name: transformer}", "{name: vit_b_32}, decoder: {name: lstm}"})
    valid_config(
        "data: {train: {format: image_list, path: a, fields: {caption: c}, tokenizer: "
        "{path: w}, transforms: [resize: {size: [32, 32]}]}}\n"
        "model: {name: captioner, encoder: " +
        blocks + checkpointing + "}\ntask: {name: captioning}\n");
}

}  // namespace
}  // namespace stoker::config::test
