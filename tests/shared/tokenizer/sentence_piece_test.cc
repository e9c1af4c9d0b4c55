// Models of SentencePiece: the ids of the library, parts of a text, and files that are not valid.
#include "shared/tokenizer/sentence_piece.h"

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/tokenizer/tokenizer.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::tokenizer {
namespace {

using test::bytes_field;
using test::number_field;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- A model file, written by hand

std::string piece(const std::string& text, float score, PieceType type = PieceType::kNormal) {
  return test::piece_field(text, score, static_cast<uint64_t>(type));
}

const std::string kSpace = "\xE2\x96\x81";
constexpr int32_t kUnknown = 0, kEnd = 1, kSpaceOnly = 2, kA = 3, kB = 4, kAb = 5, kSpaceA = 6;

std::string small_pieces() {
  return piece("<unk>", 0, PieceType::kUnknown) + piece("</s>", 0, PieceType::kControl) +
         piece(kSpace, -3) + piece("a", -3) + piece("b", -3.5) + piece("ab", -4) +
         piece(kSpace + "a", -5);
}
std::string small_model(const std::string& more = {}) { return small_pieces() + more; }
const std::string kBpe = bytes_field(2, number_field(3, 2));

std::shared_ptr<const Tokenizer> parsed(const std::string& file) {
  auto tokenizer = Tokenizer::parse(file, "m.model");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::vector<int32_t> encode(const std::shared_ptr<const Tokenizer>& tokenizer,
                            std::string_view text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(TextEncoder(tokenizer).encode(text, ids).ok());
  return ids;
}

TEST(SentencePiece, FindsTheMostLikelyPieces) {
  // "▁" + "ab" -7, "▁a" + "b" -8.5.
  EXPECT_THAT(encode(parsed(small_model()), "ab"), ElementsAre(kSpaceOnly, kAb));
  EXPECT_THAT(encode(parsed(small_model()), " a  b "), ElementsAre(kSpaceA, kSpaceOnly, kB));
}

TEST(SentencePiece, MergesTheBestPairFirst) {
  EXPECT_THAT(encode(parsed(small_model(kBpe)), "ab"), ElementsAre(kSpaceOnly, kAb));
  EXPECT_THAT(encode(parsed(small_model(kBpe)), "aab"), ElementsAre(kSpaceA, kAb));
}

TEST(SentencePiece, GivesOneIdToUnknownCharactersInARow) {
  EXPECT_THAT(encode(parsed(small_model()), "axyz\xffz a"),
              ElementsAre(kSpaceA, kUnknown, kSpaceA));
  EXPECT_THAT(encode(parsed(small_model(kBpe)), "axyz"), ElementsAre(kSpaceA, kUnknown));
}

TEST(SentencePiece, HasNoTokensOfNoText) {
  EXPECT_THAT(encode(parsed(small_model()), ""), IsEmpty());
  EXPECT_THAT(encode(parsed(small_model()), "  "), IsEmpty());
}

TEST(SentencePiece, DecodesPieces) {
  const auto tokenizer = parsed(small_model());
  EXPECT_EQ(tokenizer->end_token(), kEnd);
  EXPECT_EQ(tokenizer->size(), 7u);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{kSpaceA, kB, kUnknown, kEnd, kSpaceOnly}),
            " ab \xE2\x81\x87  ");
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Of models that PyPI's sentencepiece trained (sentencepiece_test.py --record).
TEST(SentencePiece, GivesTheIdsOfTheLibrary) {
  const auto recorded = read_file(STOKER_SENTENCEPIECE_GOLDEN, 1 << 24);
  ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
  size_t cases = 0;
  const boost::json::value rows = boost::json::parse(*recorded);
  for (const auto& row : rows.as_array()) {
    const auto tokenizer = parsed(from_hex(row.at("model").as_string()));
    ASSERT_NE(tokenizer, nullptr);
    for (const auto& entry : row.at("cases").as_array()) {
      std::string of;
      for (const auto& byte : entry.at("bytes").as_array())
        of += static_cast<char>(byte.to_number<int>());
      EXPECT_EQ(encode(tokenizer, of), boost::json::value_to<std::vector<int32_t>>(entry.at("ids")))
          << row.at("name") << ": " << of;
      ++cases;
    }
  }
  EXPECT_GE(cases, 60u);
}

// The whole text, encoded in parts that end before a space.
TEST(SentencePiece, GivesTheSameIdsInParts) {
  for (const std::string& model : {small_model(), small_model(kBpe)}) {
    const auto tokenizer = parsed(model);
    std::string text = "  ";
    for (int i = 0; i < 400; ++i)
      text += std::string(1 + i % 5, "abx"[i % 3]) + (i % 7 ? " " : "  ");
    std::vector<int32_t> ids;
    std::string_view rest = text;
    size_t parts = 0;
    bool begins = true;
    for (; !rest.empty(); ++parts) {
      const bool ends = rest.size() <= 500;
      const auto encoded = TextEncoder(tokenizer).encode_part(
          rest.substr(0, 500), {.begins_section = begins, .ends_text = ends}, ids);
      ASSERT_TRUE(encoded.ok());
      ASSERT_GT(encoded->bytes, 0u);
      begins = encoded->begins_section;
      rest.remove_prefix(encoded->bytes);
    }
    EXPECT_GT(parts, 3u);
    EXPECT_EQ(ids, encode(tokenizer, text));
  }
}

TEST(SentencePiece, EncodesNoPartIfPiecesCrossSpaces) {
  const auto tokenizer = parsed(small_model(piece("a" + kSpace + "b", -9)));
  std::vector<int32_t> ids;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "a b ";
  const auto encoded = TextEncoder(tokenizer).encode_part(text, {.ends_text = false}, ids);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->bytes, 0u);
  EXPECT_TRUE(encoded->begins_section)
      << "of the next part, which is a longer one of the same text";
  EXPECT_THAT(ids, IsEmpty());
}

// ---- Tables of replacements

std::string table_of(const std::vector<uint32_t>& units, const std::string& strings) {
  std::string table;
  const auto add = [&table](uint32_t value) {
    for (int i = 0; i < 4; ++i) table += static_cast<char>(value >> (8 * i));
  };
  add(static_cast<uint32_t>(units.size() * 4));
  for (const uint32_t unit : units) add(unit);
  return table + strings;
}

// The node of the first x is also that of each further one.
TEST(CharsMap, EndsInTablesWithCycles) {
  std::vector<uint32_t> units(128);
  units['x'] = 'x' << 10 | 1 << 8 | 'x';  // has a leaf, unit 0: string 0
  const auto map = CharsMap::parse(table_of(units, std::string("a\0", 2)));
  ASSERT_TRUE(map.ok()) << map.status().to_string();
  EXPECT_EQ(map->find("xx").bytes, 2u);
  EXPECT_EQ(map->find("xx").replacement, "a");
  EXPECT_EQ(map->find("y").bytes, 0u);
  EXPECT_EQ(map->find(std::string(1000, 'x')).bytes, 256u);
}

TEST(SentencePiece, GivesTheSameIdsInPartsThatCutUserDefinedPieces) {
  const std::string symbol(200, 'z');
  const auto tokenizer = parsed(small_model(piece(symbol, 0, PieceType::kUserDefined)));
  const std::string text = "a b " + symbol + " a";
  std::vector<int32_t> ids;
  const auto encoded =
      TextEncoder(tokenizer).encode_part(text.substr(0, 100), {.ends_text = false}, ids);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->bytes, 0u) << "it could be part of such a piece";
  EXPECT_THAT(encode(tokenizer, text),
              ElementsAre(kSpaceA, kSpaceOnly, kB, kSpaceOnly, 7, kSpaceA));
}

// ---- Errors

void expect_error(const std::string& file, StatusCode code, const std::string& message) {
  const auto tokenizer = Tokenizer::parse(file, "m.model");
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status().to_string();
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("m.model: " + message));
}

TEST(SentencePieceFile, RejectsInvalidPieces) {
  expect_error(small_model(piece("a", -1)), StatusCode::kCorrupt, "pieces[7]: occurs twice");
  expect_error(small_model(piece("<unk>", -1, PieceType::kUnknown)), StatusCode::kCorrupt,
               "pieces[7]: is a second piece of type UNKNOWN");
  expect_error(small_model(piece("<0x1>", -1, PieceType::kByte)), StatusCode::kCorrupt,
               "pieces[7]: is of type BYTE, but not <0x00> to <0xFF>");
  expect_error(small_model(piece("\xff", -1)), StatusCode::kCorrupt, "pieces[7].piece: must be");
  expect_error(small_model(piece(std::string(257, 'x'), -1)), StatusCode::kCorrupt,
               "pieces[7].piece: must be");
  expect_error(small_model(piece("x", std::numeric_limits<float>::quiet_NaN())),
               StatusCode::kCorrupt, "pieces[7].score: must be a number");
  expect_error(small_model(piece("x", -1, static_cast<PieceType>(9))), StatusCode::kMismatch,
               "pieces[7].type: 9 is not supported");
  expect_error(piece("a", -1) + piece("b", -1), StatusCode::kCorrupt,
               "pieces: none is of type UNKNOWN");
  expect_error(small_model(bytes_field(2, number_field(35, 1))), StatusCode::kCorrupt,
               "pieces: not all bytes have one");
}

TEST(SentencePieceFile, NamesFieldsThatAreNotSupported) {
  expect_error(small_model(bytes_field(2, number_field(3, 4))), StatusCode::kMismatch,
               "trainer_spec.model_type: 4 is not supported; accepted: 1 (unigram), 2 (bpe)");
  expect_error(small_model(bytes_field(3, number_field(5, 0))), StatusCode::kMismatch,
               "normalizer_spec.escape_whitespaces: false is not supported");
}

TEST(SentencePieceFile, RejectsInvalidTables) {
  const auto with_table = [](const std::string& table) {
    return small_model(bytes_field(3, bytes_field(2, table)));
  };
  const std::string message = "normalizer_spec.precompiled_charsmap: is not a valid table";
  for (const std::string& table :
       {std::string("\x04"), std::string("\x08\0\0\0abcd", 8), std::string("\x03\0\0\0abc\0", 8),
        std::string("\x04\0\0\0abcdx", 9),
        std::string("\x04\0\0\0abcd", 8) + std::string(300, 'x') + '\0'})
    expect_error(with_table(table), StatusCode::kCorrupt, message);
}

TEST(SentencePieceFile, LimitsTextOfUnknownPieces) {
  EXPECT_NE(parsed(small_model(bytes_field(2, bytes_field(44, std::string(256, '?'))))), nullptr);
  expect_error(small_model(bytes_field(2, bytes_field(44, std::string(257, '?')))),
               StatusCode::kCorrupt, "trainer_spec.unk_surface: has more than 256 bytes");
}

TEST(SentencePieceFile, RejectsEachTruncationWithinPiece) {
  const std::string file = small_model(kBpe);
  // At the end of a piece there is another whole model. A field is its tag, its length, and as many bytes.
  std::set<size_t> ends;
  for (size_t at = 0; at < file.size(); at += 2 + static_cast<uint8_t>(file[at + 1]))
    ends.insert(at);
  ASSERT_EQ(ends.size(), 1u + 7u) << "the begin, and an end of each of 7 pieces";
  for (size_t size = 4; size < file.size(); ++size)
    EXPECT_EQ(Tokenizer::parse(file.substr(0, size), "m.model").ok(), ends.contains(size)) << size;
}

}  // namespace
}  // namespace stoker::tokenizer
