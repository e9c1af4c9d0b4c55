// SentencePiece: splits text as a model of SentencePiece does (spiece.model): Unigram or BPE, with the
// normalization and the byte fallback of the model. The ids are those of
// SentencePieceProcessor.encode(text), except where it rounds sums of the scores of Unigram, which are
// exact here.
//
// Threads: immutable; any.
// Errors:  parse(): kCorrupt, kMismatch; the message starts with the field, without the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

#include "shared/base/status.h"
#include "shared/tokenizer/byte_pair_encoding.h"

namespace stoker::tokenizer {

// As in sentencepiece_model.proto.
enum class PieceType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
enum class PieceAlgorithm { kUnigram = 1, kBpe, kWord, kChar };

struct Piece {
  std::string text;  // with U+2581 for a space
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// The fields of a model file.
struct SentencePieceFile {
  std::vector<Piece> pieces;  // by id
  PieceAlgorithm algorithm = PieceAlgorithm::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  std::string unk_surface = " \xE2\x81\x87 ";  // U+2047
  std::string precompiled_charsmap;            // empty: text is not changed
};
Result<SentencePieceFile> parse_sentence_piece_file(std::string_view file);

// CharsMap: replacements of parts of a text: a double array (Aoe, 1989) as darts-clone stores it, and
// the strings.
class CharsMap {
 public:
  CharsMap() = default;  // replaces nothing
  static Result<CharsMap> parse(std::string_view blob);

  struct Match {
    size_t bytes = 0;  // 0: nothing is replaced
    std::string_view replacement;
  };
  // The longest start of the text that is replaced.
  Match find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string strings_;  // each ends with a zero byte
};

class SentencePiece {
 public:
  static Result<SentencePiece> create(SentencePieceFile file);

  // The text of each token.
  std::vector<std::string> token_texts() const;
  const std::vector<Piece>& pieces() const { return file_.pieces; }

  // Appends the tokens of a part of a text, and returns the number of its bytes that they stand for:
  // all if the part ends the text, else up to a space before which no token can end differently, or
  // 0. `begins_text`: nothing precedes the part.
  size_t encode(std::string_view text, bool begins_text, bool ends_text,
                std::vector<int32_t>& ids) const;

 private:
  struct Normalized {
    std::string text;
    size_t bytes = 0;  // of the original
  };
  struct Step {
    std::string_view out;
    size_t bytes = 0;
  };
  struct Found {
    std::string_view text;
    int32_t id = 0;
  };

  Status add_pieces();
  void add_to_trie(std::string_view text, int32_t id);
  size_t user_defined_prefix(std::string_view text) const;
  Step normalize_step(std::string_view text) const;
  Normalized normalize(std::string_view text, bool begins_text, bool ends_text) const;
  std::vector<Found> find_unigrams(std::string_view text) const;
  std::vector<Found> merge_pairs(std::string_view text) const;
  bool is(PieceType type, int32_t id) const {
    return file_.pieces[static_cast<size_t>(id)].type == type;
  }

  SentencePieceFile file_;
  CharsMap chars_map_;
  TokenIds ids_;  // of pieces that occur in text
  std::array<int32_t, 256> byte_ids_{};
  int32_t unknown_id_ = -1;
  float min_score_ = 0, max_score_ = 0;  // of normal pieces
  bool has_user_defined_ = false;
  size_t lookahead_bytes_ = 0;  // that decide what is replaced at a position of a text
  bool ends_at_spaces_ = true;  // a piece ends before each space that follows something else
  // Of ids_, for the unigrams at a position of a text: the child of a node by a byte, and the piece
  // that ends at a node, or -1. Node 0 is the root.
  boost::unordered_flat_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> ends_{-1};
};

}  // namespace stoker::tokenizer
