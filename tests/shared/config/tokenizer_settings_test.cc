// Settings of text with a tokenizer.
#include <string>
#include <variant>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/config.h"
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kTokenized = "{format: text, path: a, tokenizer: {path: t.json}}";

TEST(TokenizerSettings, TakeTokenizerAndVocabularyOfTrainingData) {
  const Config config =
      valid_config("data: {train: " + kTokenized + ", val: {format: text, path: b}}\n");
  EXPECT_EQ(config.data.at("val").text_tokenizer()->path, "t.json");
  EXPECT_EQ(training_tokenizer(config)->path, "t.json");
  EXPECT_FALSE(config.data.at("train").has_byte_tokens());
  EXPECT_TRUE(config.data.at("train").has_tokens());
  EXPECT_EQ(config.model.vocab_size(), std::nullopt);
  EXPECT_EQ(config.data.at("train").sequence()->block_size, 128);
  const Config padded =
      valid_config("data: {train: " + kTokenized + "}\nmodel: {name: gpt, vocab_size: 64}\n");
  EXPECT_EQ(padded.model.vocab_size(), 64);
  EXPECT_EQ(valid_config("data: {train: {format: text, path: a}}\n").model.vocab_size(), 256);
}

TEST(TokenizerSettings, AreThoseOfMixture) {
  const std::string mixture =
      "data: {train: {mixture: {a: 1, b: 1}}, a: {format: tokens, path: a}, b: " + kTokenized +
      ", val: {format: text, path: c";
  const Config config = valid_config(mixture + "}}\n");
  EXPECT_EQ(training_tokenizer(config)->path, "t.json");
  EXPECT_EQ(config.data.at("val").text_tokenizer()->path, "t.json");
  EXPECT_THAT(errors_of(mixture + ", tokenizer: {path: other}}}\n"),
              ElementsAre(HasSubstr("data.val.tokenizer: must be that of data.b; remove it")));
}

TEST(TokenizerSettings, HaveCacheFolder) {
  const Config config = valid_config(
      "data: {train: {format: text, path: a, tokenizer: {path: t.json}, cache: {dir: /c}}}\n");
  EXPECT_EQ(std::get<TextDataset>(config.data.at("train").source).token_cache->dir, "/c");
}

TEST(TokenizerSettings, ApplyToRecordsThatAreSamples) {
  const std::string records =
      "{format: jsonl, path: a, fields: {text: t}, tokenizer: {path: t.json}";
  EXPECT_THAT(errors_of("data: {train: " + records + "}}\n"),
              ElementsAre(HasSubstr("data.train.tokenizer: requires sequence.max_length")));
  EXPECT_THAT(errors_of("data: {train: " + records + ", sequence: {max_length: 9}}}\n"),
              ElementsAre());
  EXPECT_THAT(
      errors_of("data: {train: {format: jsonl, path: a, fields: {input_ids: t}, sequence: "
                "{max_length: 9}, tokenizer: {path: t.json}}}\n"),
      ElementsAre(HasSubstr(
          "data.train.tokenizer: requires fields.text, fields.messages or fields.caption")));
}

TEST(TokenizerSettings, RejectContradictions) {
  EXPECT_THAT(errors_of("data: {train: " + kTokenized +
                        ", val: {format: text, path: b, tokenizer: {path: other}}}\n"),
              ElementsAre(HasSubstr("data.val.tokenizer: must be that of data.train; remove it")));
  EXPECT_THAT(
      errors_of("data: {train: {format: text, path: a}, val: {format: text, path: b, "
                "tokenizer: {path: t.json}}}\n"),
      ElementsAre(HasSubstr("data.val.tokenizer: must be that of data.train, which has none")));
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a, tokenizer: {path: t}, refresh: "
                        "epoch}}\n"),
              ElementsAre(HasSubstr("data.train.refresh: cannot be combined with tokenizer")));
  EXPECT_THAT(errors_of("data: {train: {format: text, tokenizer: {path: t}, stream: {source: "
                        "stdin}}}\ntrain: {max_steps: 5}\n"),
              ElementsAre(HasSubstr("data.train.tokenizer: cannot be combined with stream")));
  EXPECT_THAT(errors_of("data: {train: {format: text, path: a, tokenizer: {}}}\n"),
              ElementsAre(HasSubstr("data.train.tokenizer.path")));
}

}  // namespace
}  // namespace stoker::config::test
