// WordPiece: the tokenizer of BERT: normalizes text, splits it at spaces and punctuation, and takes the
// longest tokens of each word from its start; BertNormalizer, BertPreTokenizer and WordPiece of Hugging
// Face's tokenizers.
//
// Threads: immutable; any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/tokenizer/byte_pair_encoding.h"

namespace stoker::tokenizer {

// The names of tokenizer.json.
struct WordPieceSettings {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
  size_t max_input_chars_per_word = 100;
  std::string continuing_subword_prefix = "##";
  int32_t unknown_token = 0;
};

class WordPiece {
 public:
  // `vocabulary`: as written, with the prefix of tokens that continue a word.
  WordPiece(WordPieceSettings settings, const TokenIds& vocabulary);

  // Both: of valid UTF-8.
  std::string normalize(std::string_view text) const;
  // Appends the tokens of normalized text.
  void encode(std::string_view normalized, std::vector<int32_t>& ids) const;
  // Whether valid UTF-8 has a character that ends words.
  static bool has_space(std::string_view text);
  // What a token stands for in a text: a space precedes each word.
  std::string text_of(std::string_view token) const;

 private:
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  WordPieceSettings settings_;
  TokenIds first_, continuing_;  // tokens at the start of a word, and within it, without the prefix
  size_t max_token_bytes_ = 0;
};

}  // namespace stoker::tokenizer
