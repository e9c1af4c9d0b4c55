// Contents of files of tokenizers: tokenizer.json (byte-level BPE, and the WordPiece of BERT), .tiktoken,
// and models of SentencePiece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stoker::test {

struct TokenizerFile {
  // Pairs that are merged, in GPT-2's alphabet of bytes, in which a space is "\u0120" ("Ġ"). The
  // tokens of the bytes are 0 to 255 in its order, from "!"; the results of the merges follow.
  std::vector<std::pair<std::string, std::string>> merges = {};
  std::vector<std::string> added_tokens = {"<|endoftext|>"};  // the last ids
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string normalizer = "null";
  std::string model_fields = {};  // ", \"ignore_merges\": true"
};

std::string to_json(const TokenizerFile& file);
// Ids: 256 "to", 257 "be", 258 " to", 259 " be", 260 "<|endoftext|>".
TokenizerFile small_tokenizer();

struct WordPieceFile {
  std::vector<std::string> words = {};  // the last ids
  std::string normalizer = R"({"type": "BertNormalizer", "clean_text": true,
                               "handle_chinese_chars": true, "strip_accents": null,
                               "lowercase": true})";
  std::string post_processor = R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                         "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}})";
  std::string model_fields = {};  // ", \"max_input_chars_per_word\": 8"
};

std::string to_json(const WordPieceFile& file);
// Ids: 0 "[PAD]", 1 "[UNK]", 2 "[CLS]", 3 "[SEP]", 4 "[MASK]", 5 "to", 6 "be", 7 "##be", 8 "##s",
// 9 ",", 10 "or".
WordPieceFile small_word_piece();

// The tokens of these ranks, from 0.
std::string to_tiktoken(const std::vector<std::string>& tokens);
// The bytes, then pairs of them: as many as r50k_base has.
std::vector<std::string> tiktoken_pairs(size_t num_ranks = 50256);

// Fields of a SentencePiece model; concatenated, they are a file.
std::string number_field(uint32_t field, uint64_t value);
std::string bytes_field(uint32_t field, const std::string& value);
// A piece; types: 1 normal, 2 unknown, 3 control, 4 user-defined, 6 byte.
std::string piece_field(const std::string& text, float score, uint64_t type = 1);
// Unigram. Ids: 0 "<unk>", 1 "</s>", 2 " ", 3 "to", 4 " to", 5 " be", 6 " or", 7 " not", 8 "\n".
std::string small_sentence_piece();

}  // namespace stoker::test
