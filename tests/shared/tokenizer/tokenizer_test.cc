#include "shared/tokenizer/tokenizer.h"

#include <filesystem>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/tokenizer/tokenizer_model.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::tokenizer {
namespace {

using test::small_tokenizer;
using test::to_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kTo = 256, kBe = 257, kSpaceTo = 258, kSpaceBe = 259, kEnd = 260;

std::shared_ptr<const Tokenizer> parsed(const std::string& file) {
  auto tokenizer = Tokenizer::parse(file, "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::vector<int32_t> encode(const std::shared_ptr<const Tokenizer>& tokenizer,
                            std::string_view text) {
  std::vector<int32_t> ids;
  const Status status = TextEncoder(tokenizer).encode(text, ids);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return ids;
}

// In parts of `part_bytes`, each continued where the tokens of the one before it end.
std::vector<int32_t> encode_in_parts(const std::shared_ptr<const Tokenizer>& tokenizer,
                                     std::string_view text, size_t part_bytes) {
  std::vector<int32_t> ids;
  bool begins = true;
  size_t size = part_bytes;
  while (!text.empty()) {
    TextEncoder encoder(tokenizer);
    const auto encoded = encoder.encode_part(
        text.substr(0, size), {.begins_section = begins, .ends_text = size >= text.size()}, ids);
    EXPECT_TRUE(encoded.ok()) << encoded.status().to_string();
    if (!encoded.ok()) return {};
    text.remove_prefix(encoded->bytes);
    begins = encoded->begins_section;
    size = encoded->bytes == 0 ? size + 1 : part_bytes;
  }
  return ids;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// ---- Encoding

TEST(Tokenizer, MergesBytesInOrderOfRank) {
  const auto tokenizer = parsed(to_json(small_tokenizer()));
  EXPECT_EQ(tokenizer->size(), 261u);
  EXPECT_EQ(tokenizer->end_token(), kEnd);
  EXPECT_THAT(encode(tokenizer, "to be to"), ElementsAre(kTo, kSpaceBe, kSpaceTo));
  EXPECT_THAT(encode(tokenizer, "be"), ElementsAre(kBe));
  EXPECT_THAT(encode(tokenizer, ""), ElementsAre());
  EXPECT_EQ(tokenizer->decode(encode(tokenizer, "to be, or not to be")), "to be, or not to be");
}

// As transformers' tokenizer(text) of version 5.24; tokenizers' Tokenizer.encode() shortens and pads.
TEST(Tokenizer, IgnoresTruncationAndPadding) {
  const std::string json = replaced(
      to_json(small_tokenizer()), "\"truncation\": null, \"padding\": null",
      R"("truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
         "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                     "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"})");
  EXPECT_THAT(encode(parsed(json), "to be to"), ElementsAre(kTo, kSpaceBe, kSpaceTo));
}

TEST(Tokenizer, FindsAddedTokensInText) {
  auto file = small_tokenizer();
  file.added_tokens.emplace_back("<|endoftext|>s");
  const auto tokenizer = parsed(to_json(file));
  EXPECT_THAT(encode(tokenizer, "to<|endoftext|>be"), ElementsAre(kTo, kEnd, kBe));
  EXPECT_THAT(encode(tokenizer, "<|endoftext|>s"), ElementsAre(kEnd + 1)) << "the longest";
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{kTo, kEnd}), "to<|endoftext|>");
}

TEST(Tokenizer, ReplacesBytesThatAreNotUtf8) {
  const auto tokenizer = parsed(to_json(small_tokenizer()));
  const auto decoded = [&](std::string_view text) {
    return tokenizer->decode(encode(tokenizer, text));
  };
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(decoded("a\xff"
                    "b"),
            "a" + mark + "b");
  EXPECT_EQ(decoded("\xe2\x82"), mark) << "one for the start of a character";
  EXPECT_EQ(decoded("\xe2\x82z"), mark + "z");
  EXPECT_EQ(decoded("\xed\xa0\x80"), mark + mark + mark) << "a surrogate";
  EXPECT_EQ(decoded("\xf0\x9f\x98\x80\xf0\x9f"), "\xf0\x9f\x98\x80" + mark);
}

TEST(Tokenizer, AddsPrefixSpaceToEachSection) {
  auto file = small_tokenizer();
  file.pre_tokenizer = R"({"type": "ByteLevel"})";
  const auto tokenizer = parsed(to_json(file));
  EXPECT_THAT(encode(tokenizer, "to"), ElementsAre(kSpaceTo));
  EXPECT_THAT(encode(tokenizer, " to<|endoftext|>be"), ElementsAre(kSpaceTo, kEnd, kSpaceBe));
  for (size_t size = 1; size < 20; ++size)
    EXPECT_EQ(encode_in_parts(tokenizer, "to be<|endoftext|>to be", size),
              encode(tokenizer, "to be<|endoftext|>to be"));
}

TEST(Tokenizer, NormalizesToComposedCharacters) {
  auto file = small_tokenizer();
  file.normalizer = R"({"type": "NFC"})";
  const auto tokenizer = parsed(to_json(file));
  EXPECT_EQ(tokenizer->decode(encode(tokenizer, "cafe\u0301 \u0301")), "caf\u00e9 \u0301");
}

TEST(Tokenizer, NormalizesManyMarksInOrderOfClass) {
  // By class: 230, 202 and 240; then 129 and 130 from one character of class 0.
  std::string marks, above, cedillas, iotas;
  for (int i = 0; i < 100'000; ++i) {
    marks += "\u0300\u0327\u0345";
    cedillas += "\u0327";
    above += "\u0300";
    iotas += "\u0345";
  }
  const auto normal = normalize_nfc("a" + marks);
  ASSERT_TRUE(normal.ok());
  EXPECT_EQ(normal->text, "\u00e0" + cedillas + above.substr(2) + iotas);
  std::string pairs, first, second;
  for (int i = 0; i < 100'000; ++i) {
    pairs += "\u0f73";
    first += "\u0f71";
    second += "\u0f72";
  }
  EXPECT_EQ(normalize_nfc(pairs)->text, first + second);
}

TEST(Tokenizer, NormalizesOnlyUtf8) {
  EXPECT_EQ(normalize_nfc("a\xff").status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(normalize_nfc("a\xff").status().message(), HasSubstr("not UTF-8"));
  EXPECT_EQ(normalize_nfc("\uac00\u11a8 \u1100\u1161 \u212b \u0958 \u0344")->text,
            "\uac01 \uac00 \u00c5 \u0915\u093c \u0308\u0301");
}

TEST(Tokenizer, UsesWholePiecesWithIgnoreMerges) {
  auto file = small_tokenizer();
  // "ob" is merged first, so that merges do not make "tobe".
  file.merges = {{"o", "b"}, {"t", "o"}, {"b", "e"}, {"to", "be"}};
  EXPECT_EQ(encode(parsed(to_json(file)), "tobe").size(), 3u);
  file.model_fields = ", \"ignore_merges\": true";
  EXPECT_EQ(encode(parsed(to_json(file)), "tobe").size(), 1u);
}

TEST(Tokenizer, EncodesPartsLikeWholeText) {
  std::string text =
      "to be's  \n\n to\tbe 1234 caf\u00e9 cafe\u0301 \u4e2d\u6587 \xff\xe2\x82 <|endoftext|>";
  text += text + "to<|endof be " + std::string(40, ' ') + "x";
  auto file = small_tokenizer();
  for (const std::string normalizer : {"null", R"({"type": "NFC"})"}) {
    file.normalizer = normalizer;
    const auto tokenizer = parsed(to_json(file));
    const auto expected = encode(tokenizer, text);
    for (size_t size = 1; size < text.size(); ++size)
      EXPECT_EQ(encode_in_parts(tokenizer, text, size), expected) << size;
  }
}

// ---- Recorded cases

TEST(Tokenizer, AgreesWithRecordedIds) {
  const auto recorded = read_file(STOKER_TOKENIZERS_GOLDEN, 1 << 24);
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  size_t cases = 0;
  const boost::json::value lines = boost::json::parse(*recorded);
  for (const auto& line : lines.as_array()) {
    const auto tokenizer = parsed(boost::json::serialize(line.at("tokenizer")));
    ASSERT_NE(tokenizer, nullptr);
    for (const auto& entry : line.at("cases").as_array()) {
      std::string text;
      for (const auto& byte : entry.at("bytes").as_array())
        text += static_cast<char>(byte.to_number<int>());
      const auto ids = boost::json::value_to<std::vector<int32_t>>(entry.at("ids"));
      EXPECT_EQ(encode(tokenizer, text), ids) << line.at("name") << ": " << text;
      EXPECT_EQ(encode_in_parts(tokenizer, text, 7), ids) << line.at("name") << ": " << text;
      ++cases;
    }
  }
  EXPECT_GE(cases, 20u);
}

// ---- Errors

void expect_error(const std::string& file, StatusCode code, const std::string& message) {
  const auto tokenizer = Tokenizer::parse(file, "t.json");
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().to_string();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("t.json: "));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(message));
  EXPECT_EQ(tokenizer.status().message().find('\n'), std::string::npos);
}

TEST(TokenizerFile, RejectsOtherFiles) {
  expect_error("", StatusCode::kCorrupt, "is no tokenizer");
  expect_error("the\nand\n", StatusCode::kCorrupt, "neither a tokenizer.json");
  expect_error("{\"hidden_size\": 12}", StatusCode::kCorrupt, "JSON without a model");
}

TEST(TokenizerFile, RejectsTruncatedJson) {
  const std::string file = to_json(small_tokenizer());
  for (const size_t bytes : {size_t{1}, file.size() / 2, file.size() - 1})
    expect_error(file.substr(0, bytes), StatusCode::kCorrupt, "is not JSON");
}

TEST(TokenizerFile, RejectsInvalidTokens) {
  const std::string file = to_json(small_tokenizer());
  expect_error(replaced(file, "\"to\": 256", "\"to\": 255"), StatusCode::kCorrupt,
               "'to': has the id 255");
  for (const std::string id : {"261", "-1", "4000000000", "null"})
    expect_error(replaced(file, "\"to\": 256", "\"to\": " + id), StatusCode::kCorrupt,
                 "model.vocab: 'to': must have an id from 0 to 260, got '" + id + "'");
  const std::string more = "{\"id\": 256, \"content\": \"to\"}, {\"id\": 261, ";
  expect_error(replaced(file, "{\"id\": 260, ", more), StatusCode::kCorrupt,
               "has no token with the id 260, below the largest, 261");
  expect_error(replaced(file, "\"id\": 260", "\"id\": 259"), StatusCode::kCorrupt,
               "has the id 259");
  expect_error(replaced(file, "\"content\": \"<|endoftext|>\"", "\"content\": \"to\""),
               StatusCode::kCorrupt, "added_tokens[0].id: is 260, but 256 in model.vocab");
  expect_error(replaced(file, "\"content\": \"<|endoftext|>\"", "\"content\": \"\""),
               StatusCode::kCorrupt, "added_tokens[0].content");
  expect_error(replaced(file, "\"!\": 0", "\"!!\": 0"), StatusCode::kCorrupt,
               "has no token for byte 33");
}

TEST(TokenizerFile, LimitsBytesOfAddedTokens) {
  auto file = small_tokenizer();
  file.added_tokens = {std::string(kMaxTokenBytes, 'x')};
  EXPECT_NE(parsed(to_json(file)), nullptr);
  file.added_tokens = {std::string(kMaxTokenBytes + 1, 'x')};
  expect_error(to_json(file), StatusCode::kCorrupt,
               "added_tokens[0].content: has 257 bytes, more than the 256 of a token");
}

TEST(TokenizerFile, RejectsInvalidMerges) {
  const std::string file = to_json(small_tokenizer());
  expect_error(replaced(file, "[\"t\", \"o\"]", "[\"t\", \"xy\"]"), StatusCode::kCorrupt,
               "model.merges[0]: 'xy' is not in model.vocab");
  expect_error(replaced(file, "[\"t\", \"o\"]", "[\"o\", \"t\"]"), StatusCode::kCorrupt,
               "model.merges[0]: 'ot' is not in model.vocab");
  expect_error(replaced(file, "[\"b\", \"e\"]", "[\"t\", \"o\"]"), StatusCode::kCorrupt,
               "model.merges[1]: repeats an earlier one");
  expect_error(replaced(file, "[\"t\", \"o\"]", "[\"to\"]"), StatusCode::kCorrupt,
               "model.merges[0]: must be two tokens");
  EXPECT_THAT(encode(parsed(replaced(file, "[\"t\", \"o\"]", "\"t o\"")), "to"), ElementsAre(kTo))
      << "the older notation";
}

TEST(TokenizerFile, NamesFieldsThatAreNotSupported) {
  const auto expect = [](const test::TokenizerFile& file, const std::string& message) {
    expect_error(to_json(file), StatusCode::kMismatch, message);
  };
  auto file = small_tokenizer();
  const auto plain = file;
  file.normalizer = R"({"type": "NFKC"})";
  expect(file, "normalizer.type: 'NFKC' is not supported; accepted: null, NFC");
  file = plain;
  file.pre_tokenizer = R"({"type": "Metaspace"})";
  expect(file, "pre_tokenizer.type: 'Metaspace' is not supported");
  file.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "ByteLevel", "add_prefix_space": false}]})";
  expect(file, "pre_tokenizer.pretokenizers[0].type: 'Whitespace' is not supported");
  file.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Removed", "pattern": {"Regex": "a"}}, {"type": "ByteLevel", "add_prefix_space": false}]})";
  expect(file, "pretokenizers[0].behavior: 'Removed' is not supported");
  file = plain;
  file.model_fields = ", \"byte_fallback\": true";
  expect(file, "model.byte_fallback: 'true' is not supported");
  file.model_fields = ", \"end_of_word_suffix\": \"</w>\"";
  expect(file, "model.end_of_word_suffix: '\"</w>\"' is not supported");
  const std::string json = to_json(plain);
  expect_error(replaced(json, "\"BPE\"", "\"Unigram\""), StatusCode::kMismatch,
               "model.type: 'Unigram' is not supported");
  expect_error(replaced(json, "\"lstrip\": false", "\"lstrip\": true"), StatusCode::kMismatch,
               "added_tokens[0].lstrip: 'true' is not supported");
  expect_error(replaced(json, "\"decoder\": {\"type\": \"ByteLevel\"}",
                        "\"decoder\": {\"type\": \"WordPiece\"}"),
               StatusCode::kMismatch, "decoder.type: 'WordPiece' is not supported");
}

TEST(TokenizerFile, RejectsPatterns) {
  auto file = small_tokenizer();
  const auto expect = [&](const std::string& pattern, const std::string& message) {
    file.pre_tokenizer =
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "pattern": {"Regex": )" +
        boost::json::serialize(boost::json::value(pattern)) +
        R"(}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
    expect_error(to_json(file), StatusCode::kCorrupt, "pretokenizers[0].pattern.Regex: ");
    expect_error(to_json(file), StatusCode::kCorrupt, message);
  };
  expect("(", "the pattern is not valid");
  for (const std::string pattern : {"a*", "(?=a)", "a*(?=b)", "b?(?=a)", "(?:a|)", ""})
    expect(pattern, "can match an empty text");
  expect("a\\b", "'\\b' is not supported");
  expect("\\p{Han}", "'\\p{Han}' is not supported");
  expect("(?<=a)b", "is not supported");
  expect("[a[b]]", "is not supported");
  expect("[a", "a class is not closed");
  for (const std::string pattern : {"(*FAIL)", "(*UCP)a", "(?:a(*SKIP)b)"})
    expect(pattern, "'(*' is not supported");
  expect("^a", "'^' is not supported");
  expect("a{1,3}+", "'}+' is not supported");
  expect("a\\", "ends with a backslash");
  expect(std::string(5000, 'a'), "more than 4096 bytes");
}

TEST(TokenizerFile, LimitsTimeOfPatterns) {
  auto file = small_tokenizer();
  file.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(?:a+)+\\p{N}"}}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
  const auto tokenizer = parsed(to_json(file));
  std::vector<int32_t> ids;
  const Status status = TextEncoder(tokenizer).encode(std::string(50, 'a') + "c", ids);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("takes too long"));
}

TEST(TokenizerFile, ReadsFileOrNamesIt) {
  const test::TemporaryDirectory folder;
  EXPECT_EQ(Tokenizer::read(folder / "none.json").status().code(), StatusCode::kNotFound);
  std::filesystem::create_directory(folder / "folder");
  EXPECT_FALSE(Tokenizer::read(folder / "folder").ok());
}

// ---- tiktoken

TEST(Tiktoken, MergesByRank) {
  const auto tokenizer = parsed(test::to_tiktoken(test::tiktoken_pairs()));
  EXPECT_EQ(tokenizer->size(), 50257u);
  EXPECT_EQ(tokenizer->end_token(), 50256);
  const auto pair = [](char first, char second) { return 256 + 256 * first + second; };
  EXPECT_THAT(encode(tokenizer, "tobe"), ElementsAre(pair('t', 'o'), pair('b', 'e')));
  EXPECT_THAT(encode(tokenizer, "bob"), ElementsAre(pair('b', 'o'), 'b')) << "of the lowest rank";
  EXPECT_EQ(tokenizer->decode(encode(tokenizer, "to be <|endoftext|>")), "to be <|endoftext|>");
  EXPECT_GT(encode(tokenizer, "<|endoftext|>").size(), 1u) << "as encode_ordinary()";
}

TEST(Tiktoken, RejectsInvalidFiles) {
  expect_error(test::to_tiktoken(test::tiktoken_pairs(300)), StatusCode::kMismatch,
               "has 300 ranks, which is not r50k_base");
  const std::vector<std::string> pairs = test::tiktoken_pairs();
  const std::string file = test::to_tiktoken(pairs);
  expect_error(replaced(file, "AQ== 1\n", "AQ== 0\n"), StatusCode::kCorrupt,
               "line 2: repeats rank 0");
  expect_error(replaced(file, "AQ== 1\n", "A-== 1\n"), StatusCode::kCorrupt,
               "line 2: must be a token in Base64");
  expect_error(replaced(file, "AQ== 1\n", "AQ== 99999999\n"), StatusCode::kCorrupt,
               "line 2: the rank must be a number");
  const auto with_first = [&](const std::string& token) {
    std::vector<std::string> tokens = pairs;
    tokens[1] = token;
    return test::to_tiktoken(tokens);
  };
  expect_error(with_first(pairs[0]), StatusCode::kCorrupt, "line 2: repeats the token");
  expect_error(with_first(std::string(kMaxTokenBytes + 1, 'x')), StatusCode::kCorrupt,
               "line 2: the token has 257 bytes, more than 256");
  expect_error(with_first(std::string(kMaxTokenBytes, 'x')), StatusCode::kCorrupt,
               "has no token for byte 1");
  expect_error(with_first("\x01\x01\x01"), StatusCode::kCorrupt, "has no token for byte 1");
}

}  // namespace
}  // namespace stoker::tokenizer
