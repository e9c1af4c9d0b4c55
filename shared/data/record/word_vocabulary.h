// WordVocabulary: the words of captions and their token ids (data.NAME.tokenizer).
//
// The file has one word per line; what follows a space or tab, such as a count, is ignored. Ids 0, 1
// and 2 are the start of a caption, its end, and all words that are not in the file; the words of the
// file follow. Lines with "<s>", "</s>", "<unk>", "<pad>" or "<mask>", in any case, are skipped.
// Words are those of ptb_words() (shared/eval_metrics/ptb_tokenizer.h).
//
// Threads: immutable; any.
// Errors:  read(): those of reading the file; kCorrupt (no word, a word twice, more than kMaxClasses).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/status.h"

namespace stoker::data::record {

inline constexpr int64_t kCaptionStart = 0, kCaptionEnd = 1, kUnknownWord = 2;

class WordVocabulary {
 public:
  static Result<WordVocabulary> read(const std::string& path);

  // The text of each token id.
  const std::vector<std::string>& words() const { return words_; }
  uint64_t size() const { return words_.size(); }
  // Hex SHA-256 of words().
  const std::string& digest() const { return digest_; }
  // The ids of the words of a caption and kCaptionEnd.
  std::vector<int64_t> encode(std::string_view caption) const;

 private:
  WordVocabulary() = default;

  std::vector<std::string> words_;
  std::unordered_map<std::string, int64_t> ids_;
  std::string digest_;
};

// The caption with these token ids, up to kCaptionEnd; words are separated by spaces.
std::string decode_caption(const std::vector<int64_t>& tokens,
                           const std::vector<std::string>& words);

}  // namespace stoker::data::record
