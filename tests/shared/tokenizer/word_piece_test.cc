// The WordPiece of BERT; tokenizers_test.py compares the ids with those of tokenizers.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::tokenizer {
namespace {

using test::small_word_piece;
using test::WordPieceFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kUnknown = 1, kCls = 2, kSep = 3, kWordTo = 5, kWordBe = 6, kSuffixBe = 7,
                  kSuffixS = 8, kComma = 9, kOr = 10;

std::shared_ptr<const Tokenizer> parsed_words(const WordPieceFile& file) {
  auto tokenizer = Tokenizer::parse(test::to_json(file), "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::string words_error(const WordPieceFile& file) {
  return Tokenizer::parse(test::to_json(file), "t.json").status().message();
}

std::vector<int32_t> encode_words(const WordPieceFile& file, std::string_view text) {
  std::vector<int32_t> ids;
  const Status status = TextEncoder(parsed_words(file)).encode(text, ids);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return ids;
}
std::vector<int32_t> encode_words(std::string_view text) {
  return encode_words(small_word_piece(), text);
}

TEST(WordPieceTest, TakesTheLongestTokensOfEachWord) {
  EXPECT_THAT(encode_words("to be"), ElementsAre(kWordTo, kWordBe));
  EXPECT_THAT(encode_words("tobes, or"), ElementsAre(kWordTo, kSuffixBe, kSuffixS, kComma, kOr));
  EXPECT_THAT(encode_words("tox be"), ElementsAre(kUnknown, kWordBe))
      << "no part of a word that has another";
  EXPECT_THAT(encode_words("s"), ElementsAre(kUnknown)) << "only within a word";
  EXPECT_THAT(encode_words(""), IsEmpty());
  EXPECT_THAT(encode_words("##be"), ElementsAre(kUnknown, kUnknown, kWordBe)) << "punctuation";
}

TEST(WordPieceTest, NormalizesText) {
  EXPECT_THAT(encode_words("T\u00d6 B\u00e9"), ElementsAre(kWordTo, kWordBe));
  EXPECT_THAT(encode_words("to\u0301\u0323"), ElementsAre(kWordTo));
  EXPECT_THAT(encode_words("t\u200bo\tbe\x01\xc2\xa0or\u3000to"),
              ElementsAre(kWordTo, kWordBe, kOr, kWordTo));
  EXPECT_THAT(encode_words("to\u4e2dbe"), ElementsAre(kWordTo, kUnknown, kWordBe))
      << "an ideograph is a word";
  EXPECT_THAT(encode_words("to\u2014be"), ElementsAre(kWordTo, kUnknown, kWordBe))
      << "so is a dash";
  EXPECT_THAT(encode_words("to\xff be"), ElementsAre(kWordTo, kWordBe)) << "U+FFFD is removed";
  WordPieceFile cased = small_word_piece();
  cased.normalizer = R"({"type": "BertNormalizer", "clean_text": false, "lowercase": false,
                         "handle_chinese_chars": false, "strip_accents": null})";
  EXPECT_THAT(encode_words(cased, "to To b\u00e9 be\u200b"),
              ElementsAre(kWordTo, kUnknown, kUnknown, kUnknown));
}

TEST(WordPieceTest, LowersCapitalsOfUnicode17) {
  WordPieceFile file = small_word_piece();
  for (const char* const letter : {"\u1c8a", "\u0264", "\ua7cd", "\u019b", "\U00010d70",
                                   "\U00010d85", "\U00016ebb", "\U00016ed3"})
    file.words.emplace_back(letter);
  EXPECT_THAT(encode_words(file,
                           "\u1c89 \ua7cb \ua7cc \ua7dc \U00010d50 \U00010d65 \U00016ea0 "
                           "\U00016eb8"),
              ElementsAre(11, 12, 13, 14, 15, 16, 17, 18));
  EXPECT_THAT(encode_words(file, "\U00010d66 \U00016eb9"), ElementsAre(kUnknown, kUnknown));
}

TEST(WordPieceTest, LimitsTheLengthOfWords) {
  WordPieceFile file = small_word_piece();
  file.model_fields = R"(, "max_input_chars_per_word": 5)";
  EXPECT_THAT(encode_words(file, "tobes"), ElementsAre(kWordTo, kSuffixBe, kSuffixS));
  EXPECT_THAT(encode_words(file, "tobess"), ElementsAre(kUnknown));
  file.model_fields = R"(, "max_input_chars_per_word": 0)";
  EXPECT_THAT(words_error(file), HasSubstr("model.max_input_chars_per_word: must be from 1 to"));
}

TEST(WordPieceTest, FindsSpecialTokensAndHasThoseOfATemplate) {
  EXPECT_THAT(encode_words("[CLS]to[SEP] be"), ElementsAre(kCls, kWordTo, kSep, kWordBe));
  const auto tokenizer = parsed_words(small_word_piece());
  EXPECT_EQ(tokenizer->size(), 11u);
  EXPECT_THAT(tokenizer->text_template().before, ElementsAre(kCls));
  EXPECT_THAT(tokenizer->text_template().after, ElementsAre(kSep));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{kWordTo, kSuffixBe, kSuffixS, kOr}),
            " tobes or");
  WordPieceFile other = small_word_piece();
  other.post_processor = R"({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})";
  EXPECT_THAT(parsed_words(other)->text_template().before, ElementsAre(kCls));
  EXPECT_THAT(parsed_words(other)->text_template().after, ElementsAre(kSep));
  other.post_processor = "null";
  EXPECT_EQ(parsed_words(other)->text_template().size(), 0u);
}

// So that there is no place in a text for each token.
TEST(WordPieceTest, IsNotLossless) {
  EXPECT_FALSE(parsed_words(small_word_piece())->is_lossless());
  EXPECT_TRUE((*Tokenizer::parse(test::to_json(test::small_tokenizer()), "t.json"))->is_lossless());
}

// Parts end at spaces.
TEST(WordPieceTest, EncodesTextInParts) {
  const std::string text = "tobes, or [SEP] to\u4e2dbe\n\nto be  ";
  const std::vector<int32_t> whole = encode_words(text);
  const auto tokenizer = parsed_words(small_word_piece());
  for (size_t part = 1; part <= text.size(); ++part) {
    std::vector<int32_t> ids;
    TextEncoder encoder(tokenizer);
    size_t size = part;
    for (std::string_view rest = text; !rest.empty();) {
      const auto encoded =
          encoder.encode_part(rest.substr(0, size), {.ends_text = size >= rest.size()}, ids);
      ASSERT_TRUE(encoded.ok());
      rest.remove_prefix(encoded->bytes);
      size = encoded->bytes == 0 ? size + 1 : part;
    }
    EXPECT_EQ(ids, whole) << part;
  }
}

TEST(WordPieceTest, RejectsWhatChangesTheIds) {
  WordPieceFile file = small_word_piece();
  file.normalizer = R"({"type": "NFC"})";
  EXPECT_THAT(words_error(file), HasSubstr("normalizer.type: 'NFC' is not supported; accepted: "
                                           "BertNormalizer"));
  file = small_word_piece();
  file.post_processor = R"({"type": "RobertaProcessing"})";
  EXPECT_THAT(words_error(file), HasSubstr("post_processor.type: 'RobertaProcessing'"));
  for (const auto& [single, message] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "post_processor.single: lacks the text"},
           {R"([{"Sequence": {}}, {"Sequence": {}}])", "post_processor.single: has the text twice"},
           {R"([{"SpecialToken": {"id": "x"}}])", "post_processor.special_tokens.'x': must be an"},
           {"{}", "post_processor.single: must be a list"}}) {
    file.post_processor =
        R"({"type": "TemplateProcessing", "special_tokens": {}, "single": )" + single + "}";
    EXPECT_THAT(words_error(file), HasSubstr(message));
  }
  file.post_processor = R"({"type": "BertProcessing", "sep": ["[SEP]", 99], "cls": ["[CLS]", 2]})";
  EXPECT_THAT(words_error(file), HasSubstr("post_processor.sep: must have an id from 0 to"));
  file.post_processor = R"({"type": "BertProcessing", "sep": ["[SEP]", 11], "cls": ["[CLS]", 2]})";
  EXPECT_THAT(words_error(file),
              HasSubstr("post_processor: has the id 11, but the largest of a token is 10"));
  file = small_word_piece();
  file.words.emplace_back(257, 'x');
  EXPECT_THAT(words_error(file), HasSubstr("model.vocab: token 11 has 257 bytes, more than 256"));
  std::string json = test::to_json(small_word_piece());
  json.replace(json.find("\"unk_token\": \"[UNK]\""), 20, "\"unk_token\": \"[unk]\"");
  EXPECT_THAT(Tokenizer::parse(json, "t.json").status().message(),
              HasSubstr("model.unk_token: '[unk]' is not in model.vocab"));
  json = test::to_json(small_word_piece());
  json.replace(json.find("BertPreTokenizer"), 16, "Whitespace");
  EXPECT_THAT(Tokenizer::parse(json, "t.json").status().message(),
              HasSubstr("pre_tokenizer.type: 'Whitespace' is not supported"));
}

}  // namespace
}  // namespace stoker::tokenizer
