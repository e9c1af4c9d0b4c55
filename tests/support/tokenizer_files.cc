#include "tests/support/tokenizer_files.h"

#include <bit>
#include <set>
#include <string_view>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

namespace stoker::test {
namespace {

std::string json_text(const std::string& text) {
  return boost::json::serialize(boost::json::value(text));
}

// The character of GPT-2's alphabet with this code point.
std::string character(uint32_t code) {
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

std::vector<std::string> alphabet() {
  std::vector<std::string> characters;
  for (uint32_t code = '!'; code < 256; ++code)
    if (code <= '~' || (code >= 0xa1 && code != 0xad)) characters.push_back(character(code));
  for (uint32_t code = 256; characters.size() < 256; ++code) characters.push_back(character(code));
  return characters;
}

std::string base64(const std::string& bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (int j = 0; j < 4; ++j)
      text += i + static_cast<size_t>(j) > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
  }
  return text;
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string float_field(uint32_t field, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  std::string bytes = varint(field << 3 | 5);
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(bits >> (8 * i));
  return bytes;
}

}  // namespace

std::string to_json(const TokenizerFile& file) {
  std::vector<std::string> tokens = alphabet();
  std::string merges, added;
  std::set<std::string> known(tokens.begin(), tokens.end());
  for (const auto& [left, right] : file.merges) {
    if (known.insert(left + right).second) tokens.push_back(left + right);
    merges += (merges.empty() ? "[" : ", [") + json_text(left) + ", " + json_text(right) + "]";
  }
  std::string vocabulary;
  for (size_t id = 0; id < tokens.size(); ++id)
    vocabulary += (id == 0 ? "" : ", ") + json_text(tokens[id]) + ": " + std::to_string(id);
  for (size_t i = 0; i < file.added_tokens.size(); ++i)
    added += (i == 0 ? "" : ", ") + std::string("{\"id\": ") + std::to_string(tokens.size() + i) +
             ", \"content\": " + json_text(file.added_tokens[i]) +
             ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
             "false, \"special\": true}";
  return "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [" +
         added + "], \"normalizer\": " + file.normalizer +
         ", \"pre_tokenizer\": " + file.pre_tokenizer +
         ", \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, " +
         "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"vocab\": {" +
         vocabulary + "}, \"merges\": [" + merges + "]" + file.model_fields + "}}";
}

std::string to_json(const WordPieceFile& file) {
  std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::string added, vocabulary;
  for (size_t id = 0; id < tokens.size(); ++id)
    added += (id == 0 ? "" : ", ") + std::string("{\"id\": ") + std::to_string(id) +
             ", \"content\": " + json_text(tokens[id]) +
             ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": "
             "false, \"special\": true}";
  tokens.insert(tokens.end(), file.words.begin(), file.words.end());
  for (size_t id = 0; id < tokens.size(); ++id)
    vocabulary += (id == 0 ? "" : ", ") + json_text(tokens[id]) + ": " + std::to_string(id);
  // truncation and padding as in the published files.
  return "{\"version\": \"1.0\", \"truncation\": {\"max_length\": 128, \"strategy\": "
         "\"LongestFirst\", \"stride\": 0}, \"padding\": {\"strategy\": {\"Fixed\": 128}}, "
         "\"added_tokens\": [" +
         added + "], \"normalizer\": " + file.normalizer +
         ", \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": " +
         file.post_processor +
         ", \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\"}, \"model\": {\"type\": "
         "\"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
         "\"vocab\": "
         "{" +
         vocabulary + "}" + file.model_fields + "}}";
}

WordPieceFile small_word_piece() { return {.words = {"to", "be", "##be", "##s", ",", "or"}}; }

TokenizerFile small_tokenizer() {
  return {.merges = {{"t", "o"}, {"b", "e"}, {"\u0120", "to"}, {"\u0120", "be"}}};
}

std::string to_tiktoken(const std::vector<std::string>& tokens) {
  std::string file;
  for (size_t rank = 0; rank < tokens.size(); ++rank)
    file += base64(tokens[rank]) + ' ' + std::to_string(rank) + '\n';
  return file;
}

std::vector<std::string> tiktoken_pairs(size_t num_ranks) {
  std::vector<std::string> tokens(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    if (rank >= 256) tokens[rank] += static_cast<char>((rank - 256) / 256);
    tokens[rank] += static_cast<char>(rank % 256);
  }
  return tokens;
}

std::string number_field(uint32_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}

std::string bytes_field(uint32_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

std::string piece_field(const std::string& text, float score, uint64_t type) {
  return bytes_field(1, bytes_field(1, text) + float_field(2, score) + number_field(3, type));
}

std::string small_sentence_piece() {
  const std::string space = "\u2581";
  std::string file = piece_field("<unk>", 0, 2) + piece_field("</s>", 0, 3) +
                     piece_field(space, -5) + piece_field("to", -2);
  for (const std::string word : {"to", "be", "or", "not"}) file += piece_field(space + word, -2);
  return file + piece_field("\n", -2);
}

}  // namespace stoker::test
