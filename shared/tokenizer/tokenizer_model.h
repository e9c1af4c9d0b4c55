// TokenizerModel: what a tokenizer file describes.
//
// Threads: a value.
// Errors:  parse_…(): kCorrupt, kMismatch; the message starts with the field, without the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/tokenizer/byte_pair_encoding.h"
#include "shared/tokenizer/sentence_piece.h"
#include "shared/tokenizer/split_pattern.h"
#include "shared/tokenizer/tokenizer.h"
#include "shared/tokenizer/word_piece.h"

namespace stoker::tokenizer {

// Ids are indices of vectors, and labels of a loss.
inline constexpr size_t kMaxTokens = size_t{1} << 22;
// Of tokens whose parts or positions are searched for: for each byte of a text, so many bytes of tokens of each
// length are hashed. Above that of every known encoding (128).
inline constexpr size_t kMaxTokenBytes = 256;

// Tokens that are found in a text before it is split; of those that start at the same byte, the
// longest.
class AddedTokens {
 public:
  void add(std::string content, int32_t id);
  bool empty() const { return max_bytes_ == 0; }

  struct Match {
    TextRange range;
    int32_t id = 0;
  };
  // The first match from `from`. In a text that is not complete, only matches that more text
  // cannot change.
  std::optional<Match> find(std::string_view text, size_t from, bool is_complete) const;
  // The end of the text in which every match is found, between two characters.
  size_t searched_end(std::string_view text, bool is_complete) const;

 private:
  TokenIds ids_;
  std::array<std::vector<size_t>, 256> lengths_;  // by first byte, in bytes, the longest first
  size_t max_bytes_ = 0;
};

struct Split {
  SplitPattern pattern;
  bool keeps_rest = true;  // what does not match is a piece, too
};

struct TokenizerModel {
  std::vector<std::string> tokens;  // bytes by id
  BytePairEncoding bytes;
  AddedTokens raw_tokens;         // found before normalization
  AddedTokens normalized_tokens;  // found after it
  bool normalizes_nfc = false;
  bool adds_prefix_space = false;
  std::vector<Split> splits;  // each is applied to the pieces of the one before it
  std::optional<int32_t> end_token;
  std::optional<SentencePiece>
      maybe_sentence_piece;  // then of the others only tokens and end_token
  std::optional<WordPiece>
      maybe_word_piece;  // then of the others tokens, added tokens, end_token and text_template
  TextTemplate text_template;
};

Result<TokenizerModel> parse_tokenizer_json(std::string_view file);
// kCorrupt also if the number of ranks is that of no known encoding.
Result<TokenizerModel> parse_tiktoken(std::string_view file);
Result<TokenizerModel> parse_sentence_piece(std::string_view file);

// The end token is the first of these names that is a token.
inline constexpr std::array<std::string_view, 4> kEndTokens{"<|endoftext|>", "<|end_of_text|>",
                                                            "<eos>", "</s>"};

// Text in normalization form C, and how to find positions of the text it was made from.
struct MappedText {
  struct Change {
    TextRange out, in;
  };
  std::string text;
  std::vector<Change> changes;  // in order; all other bytes are equal

  // The position of the original text; nullopt within a change.
  std::optional<size_t> original(size_t at) const;
};
// Of UTF-8, else kCorrupt.
Result<MappedText> normalize_nfc(std::string_view text);

}  // namespace stoker::tokenizer
