// Conversations in JSON Lines: the tokens and labels are those of transformers.
#include "shared/data/record/chat_messages.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/fake_sandbox.h"
#include "tests/shared/data/sequence_fixture.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::data::record {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using testing::FakeSandbox;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;

constexpr int64_t kLength = 100;

// Byte-level BPE that normalizes, with the special tokens of all templates and merges that could
// cross the borders of messages.
std::string chat_tokenizer() {
  test::TokenizerFile file = test::small_tokenizer();
  file.merges.emplace_back("\u010a", "\u010a");  // two line ends
  file.normalizer = R"({"type": "NFC"})";
  file.pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  for (const char* const token :
       {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
        "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "[INST]", "[/INST]"})
    file.added_tokens.emplace_back(token);
  return test::to_json(file);
}

class ChatMessagesTest : public testing::SequenceFixture {
 protected:
  void SetUp() override {
    write("t.json", chat_tokenizer());
    if (const char* const file = std::getenv("STOKER_WRITE_TOKENIZER"))
      std::ofstream(file) << chat_tokenizer();
  }
  config::DatasetConfig chat(config::ChatTemplate chat_template) const {
    config::DatasetConfig config;
    config.source = config::JsonlDataset{};
    path_in(config) = path("data.jsonl");
    fields_in(config).messages = "messages";
    sequence_in(config).max_length = kLength;
    record_in(config).tokenizer =
        config::TokenizerConfig{.path = path("t.json"), .chat_template = chat_template};
    return config;
  }
  config::DatasetConfig chatml() const { return chat(config::ChatTemplate::kChatml); }
  void expect_line_error(const std::string& line, const std::vector<std::string>& words) const {
    write("data.jsonl", line + "\n");
    expect_error(chatml(), StatusCode::kCorrupt, words);
  }
  // A padded list.
  template <typename T>
  static std::vector<T> padded(const json::value& list, T padding) {
    std::vector<T> values = json::value_to<std::vector<T>>(list);
    values.resize(kLength, padding);
    return values;
  }
};

TEST_F(ChatMessagesTest, HaveTokensAndLabelsOfTransformers) {
  for (const auto chat_template : {config::ChatTemplate::kChatml, config::ChatTemplate::kLlama3,
                                   config::ChatTemplate::kMistral}) {
    std::vector<json::value> expected;
    std::string lines;
    std::ifstream golden(STOKER_CHAT_GOLDEN);
    for (std::string line; std::getline(golden, line);) {
      json::value conversation = json::parse(line);
      if (conversation.at("template").as_string() != config::to_string(chat_template)) continue;
      const auto labels = json::value_to<std::vector<int64_t>>(conversation.at("labels"));
      const bool has_reply = std::ranges::any_of(labels, [](int64_t id) { return id != -100; });
      lines += "{\"messages\": " + json::serialize(conversation.at("messages")) + "}\n";
      if (has_reply) expected.push_back(std::move(conversation));
    }
    ASSERT_GE(expected.size(), 5u);
    write("data.jsonl", lines);
    const auto dataset = opened(chat(chat_template));
    ASSERT_EQ(dataset->size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const Sample sample = read_sample(*dataset, i);
      ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
      EXPECT_EQ(sample.values<int32_t>(0), padded<int32_t>(expected[i].at("input_ids"), 0)) << i;
      EXPECT_EQ(sample.values<int64_t>(2), padded<int64_t>(expected[i].at("labels"), -100)) << i;
    }
  }
}

TEST_F(ChatMessagesTest, BecomeTokensLengthAndLabels) {
  write("data.jsonl", R"({"id": 3, "messages": [{"role": "user", "content": "to"}, )"
                      R"({"content": "be", "name": null, "role": "assistant"}]})"
                      "\n");
  const auto dataset = opened(chatml());
  EXPECT_EQ(dataset->spec(), (std::vector<TensorSpec>{
                                 {.name = "tokens", .dtype = DType::kI32, .shape = {kLength}},
                                 {.name = "length", .dtype = DType::kI64, .shape = {}},
                                 {.name = "labels", .dtype = DType::kI64, .shape = {kLength}}}));
  EXPECT_EQ(dataset->classes(), 272u);
  const Sample sample = read_sample(*dataset, 0);
  const auto labels = sample.values<int64_t>(2);
  std::vector<int64_t> learned;
  for (const int64_t label : labels)
    if (label != -100) learned.push_back(label);
  EXPECT_THAT(learned, ElementsAre(257, 263)) << "be, <|im_end|>";
  EXPECT_EQ(sample.values<int64_t>(1)[0], static_cast<int64_t>(dataset->length(0)));
  // A shorter batch.
  const uint64_t length = dataset->length(0);
  EXPECT_EQ(read_in_batch(*dataset, 0, length).values<int64_t>(2),
            std::vector<int64_t>(labels.begin(), labels.begin() + static_cast<int64_t>(length)));
}

TEST_F(ChatMessagesTest, ArePacked) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "to"}, {"role": "assistant", "content": "be"}]})"
      "\n";
  write("data.jsonl", line + line);
  config::DatasetConfig config = chatml();
  const auto alone = opened(config);
  const auto length = static_cast<int64_t>(alone->length(0));
  sequence_in(config).packing = true;
  const auto packed = opened(config);
  ASSERT_EQ(packed->size(), 1u);
  const auto labels = read_sample(*packed, 0).values<int64_t>(2);
  auto expected = read_sample(*alone, 0).values<int64_t>(2);
  std::copy_n(expected.begin(), length, expected.begin() + length);
  EXPECT_EQ(labels, expected);
}

TEST_F(ChatMessagesTest, AreCountedInSandbox) {
  write("data.jsonl", R"({"messages": [{"role": "assistant", "content": "to be"}]})"
                      "\n");
  const FakeSandbox sandbox(path("t.json"));
  const auto dataset = pipeline::open_dataset("train", chatml(), index_dir(), {}, 0, &sandbox);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ(sandbox.num_texts, 1u);
  EXPECT_TRUE(read_sample(**dataset, 0).status.ok());
}

// Normalization has a cost that untrusted text determines.
TEST_F(ChatMessagesTest, AreNormalizedInSandboxOnly) {
  write("data.jsonl",
        "{\"messages\": [{\"role\": \"u\u0308\", \"content\": \"e\u0301\"}, "
        "{\"role\": \"assistant\", \"content\": \"a\u0300\"}]}\n");
  const FakeSandbox sandbox(path("t.json"));
  const auto dataset = pipeline::open_dataset("train", chatml(), index_dir(), {}, 0, &sandbox);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_THAT(sandbox.last_text, HasSubstr("<|im_start|>u\u0308\ne\u0301<|im_end|>"));
  const Sample sample = read_sample(**dataset, 0);
  EXPECT_TRUE(sample.status.ok()) << sample.status.to_string();
  EXPECT_EQ(static_cast<uint64_t>(sample.values<int64_t>(1)[0]), (*dataset)->length(0));
}

TEST_F(ChatMessagesTest, AreDroppedWithoutReply) {
  const std::string question = R"({"messages": [{"role": "user", "content": "to"}]})"
                               "\n";
  const std::string answer = R"({"messages": [{"role": "assistant", "content": "be"}]})"
                             "\n";
  write("data.jsonl", question + answer + question);
  EXPECT_EQ(opened(chatml())->size(), 1u);
  const FakeSandbox sandbox(path("t.json"));
  const auto counted = pipeline::open_dataset("train", chatml(), path("other"), {}, 0, &sandbox);
  ASSERT_TRUE(counted.ok()) << counted.status().to_string();
  EXPECT_EQ((*counted)->size(), 1u);
  write("data.jsonl", question + question);
  expect_error(chatml(), StatusCode::kInvalidArgument,
               {"line 1", "has no message of the role assistant within max_length",
                "2 of 2 are conversations without a reply", "data.train.sequence.max_length"});
}

TEST_F(ChatMessagesTest, AreDroppedIfTruncatedBeforeReply) {
  const auto line = [](const std::string& question) {
    return R"({"messages": [{"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": "be"}]})" + "\n";
  };
  write("data.jsonl", line("to") + line(std::string(2 * kLength, 'x')));
  config::DatasetConfig config = chatml();
  sequence_in(config).on_overflow = config::OnOverflow::kTruncate;
  EXPECT_EQ(opened(config)->size(), 1u);
  const FakeSandbox sandbox(path("t.json"));
  const auto counted = pipeline::open_dataset("train", config, path("other"), {}, 0, &sandbox);
  ASSERT_TRUE(counted.ok()) << counted.status().to_string();
  EXPECT_EQ((*counted)->size(), 1u);
}

TEST_F(ChatMessagesTest, NeedTokenizerThatKeepsText) {
  write("data.jsonl", R"({"messages": [{"role": "assistant", "content": "x"}]})"
                      "\n");
  test::TokenizerFile file = test::small_tokenizer();
  file.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "[^ ]+"}, "behavior": "Removed", "invert": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  write("t.json", test::to_json(file));
  expect_error(chatml(), StatusCode::kInvalidArgument, {"data.train.tokenizer.path: must be"});
  write("t.json", test::to_json(test::small_word_piece()));
  expect_error(chatml(), StatusCode::kInvalidArgument, {"data.train.tokenizer.path: must be"});
}

TEST_F(ChatMessagesTest, MustBeObjectsWithRoleAndContent) {
  expect_line_error(R"({"messages": "to be"})", {"line 1", "must be a list of messages"});
  expect_line_error(R"({"messages": ["to be"]})", {"line 1", "'messages'"});
  expect_line_error(R"({"messages": [3]})", {"must be a list of messages"});
  expect_line_error(R"({"messages": [[{"role": "user", "content": "x"}]]})",
                    {"must be a list of messages"});
  expect_line_error(R"({"messages": [{"role": "user"}]})", {"a message without role and content"});
  expect_line_error(R"({"messages": [{"role": "user", "content": null}]})", {"content"});
  expect_line_error(R"({"messages": [{"role": "user", "content": 3}]})", {"must be text"});
  expect_line_error(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
                    {"'messages.content' is not supported in a message"});
  expect_line_error(R"({"messages": [{"role": "user", "role": "user", "content": "x"}]})",
                    {"is a duplicate key"});
  expect_line_error(R"({"messages": [{"role": "user", "content": "x", "tool_calls": "f"}]})",
                    {"'messages.tool_calls' is not supported in a message"});
  expect_line_error(R"({"messages": [{"role": "user", "content": "x", "weight": 0}]})",
                    {"'messages.weight' is not supported in a message"});
  expect_line_error(R"({"messages": [{"role": "user", "con\ntent": "x"}]})",
                    {"'messages.con?tent' is not supported in a message"});
  expect_line_error(R"({"messages": [{"role": "user", "content": "x <|im_end|>"}]})",
                    {"line 1", "has the special token <|im_end|> in a message"});
  write("data.jsonl", "{\"messages\": []}\n");
  expect_error(chatml(), StatusCode::kInvalidArgument, {"line 1", "has no messages 'messages'"});
}

TEST_F(ChatMessagesTest, HaveRolesInTurnWithMistral) {
  const auto expect_role_error = [&](const std::string& role, const std::string& other,
                                     const std::string& message) {
    write("data.jsonl", R"({"messages": [{"role": ")" + role +
                            R"(", "content": "to"}, {"role": ")" + other +
                            R"(", "content": "be"}]})" + "\n");
    expect_error(chat(config::ChatTemplate::kMistral), StatusCode::kCorrupt, {"line 1", message});
  };
  expect_role_error("user", "tool", "a message of the role 'tool', expected assistant");
  expect_role_error("user", "user", "a message of the role 'user', expected assistant");
  expect_role_error("user", "system", "a message of the role 'system', expected assistant");
  expect_role_error("assistant", "user", "a message of the role 'assistant', expected user");
  expect_role_error("system", "assistant", "a message of the role 'assistant', expected user");
}

TEST_F(ChatMessagesTest, NeedTokenizerWithSpecialTokensOfTemplate) {
  write("data.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})"
                      "\n");
  write("t.json", test::to_json(test::small_tokenizer()));
  expect_error(chatml(), StatusCode::kInvalidArgument,
               {"data.train.tokenizer.chat_template: chatml needs the token <|im_start|>, which ",
                "t.json does not have"});
}

}  // namespace
}  // namespace stoker::data::record
