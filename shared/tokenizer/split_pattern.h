// SplitPattern: a regular expression that splits text into the pieces that a tokenizer encodes
// separately (`pre_tokenizer` of tokenizer.json), matched with PCRE2.
//
// Accepts the part of the syntax of Oniguruma, which Hugging Face's tokenizers uses, whose meaning
// is the same in PCRE2: literals, classes, \s, \S, \d, general categories (\p{Lu}), groups,
// lookahead, alternatives and quantifiers. \s is Unicode's White_Space.
//
// Threads: immutable; any.
// Errors:  compile(), literal(): kCorrupt, with the position; find(): kCorrupt (the pattern exceeds
//          its limits on this text), kOutOfMemory.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::tokenizer {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

class SplitPattern {
 public:
  static Result<SplitPattern> compile(std::string_view pattern);
  // Matches exactly this text.
  static Result<SplitPattern> literal(std::string_view text);

  struct Match {
    enum class End {
      kFound,
      kNone,     // no match in the rest of the text
      kUnknown,  // the end of the text was reached, and more text could change the match
    };
    End end = End::kNone;
    TextRange range;  // kFound
  };
  // The next match in valid UTF-8, from a character that starts at `from`. kUnknown only if the
  // text is not complete: `is_complete` is false.
  Result<Match> find(std::string_view text, size_t from, bool is_complete) const;

 private:
  struct Code;
  explicit SplitPattern(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static Result<SplitPattern> compile_translated(std::string_view pattern, unsigned options);

  std::shared_ptr<const Code> code_;
};

}  // namespace stoker::tokenizer
