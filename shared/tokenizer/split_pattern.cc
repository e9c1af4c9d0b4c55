#include "shared/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
// In matching one piece; exceeded only by patterns with exponential time.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = size_t{16} << 20;
// The space characters of Unicode. PCRE2's \s also has U+180E, which is none since Unicode 6.3.
constexpr std::string_view kSpaces = R"(\t-\r\x{85}\p{Z})";

Status bad_pattern(size_t at, const std::string& what) {
  return Status(StatusCode::kCorrupt, "the pattern at offset " + std::to_string(at) + ": " + what);
}

// Rewrites a pattern for PCRE2, or rejects what has another meaning there.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> translate() {
    while (at_ < pattern_.size()) STOKER_RETURN_IF_ERROR(translate_next());
    if (in_class_) return bad_pattern(at_, "a class is not closed");
    return std::move(out_);
  }

 private:
  bool is_next(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void take(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }
  Status unsupported(std::string_view what) const {
    return bad_pattern(at_, quote_for_message(what) + " is not supported");
  }

  Status translate_next() {
    if (is_next("\\")) return translate_escape();
    if (in_class_) return translate_in_class();
    for (const std::string_view anchor : {"^", "$", "."})
      if (is_next(anchor)) return unsupported(anchor);
    if (is_next("[")) {
      in_class_ = true;
      take(is_next("[^") ? 2 : 1);
      if (is_next("]")) return unsupported("[]");
      return {};
    }
    if (is_next("(")) return translate_group();
    // {1,3}+ is possessive in PCRE2 only, and {,3} a quantifier in Oniguruma only.
    if (is_next("}+") || is_next("}?") || is_next("{,"))
      return unsupported(pattern_.substr(at_, 2));
    take(1);
    return {};
  }

  Status translate_group() {
    if (is_next("(*")) return unsupported("(*");  // a verb of PCRE2
    if (!is_next("(?")) {
      take(1);
      return {};
    }
    for (const std::string_view group : {"(?:", "(?i:", "(?=", "(?!"}) {
      if (!is_next(group)) continue;
      take(group.size());
      return {};
    }
    return unsupported(pattern_.substr(at_, 3));
  }

  Status translate_in_class() {
    if (is_next("[") || is_next("&&")) return unsupported(pattern_.substr(at_, 2));
    if (is_next("]")) in_class_ = false;
    take(1);
    return {};
  }

  Status translate_escape() {
    const std::string_view escape = pattern_.substr(at_, 2);
    if (escape.size() < 2) return bad_pattern(at_, "ends with a backslash");
    const char letter = escape[1];
    if (letter == 'p' || letter == 'P') return translate_category();
    if (letter == 's') {
      out_ += in_class_ ? std::string(kSpaces) : '[' + std::string(kSpaces) + ']';
    } else if (letter == 'S' && !in_class_) {
      out_ += "[^" + std::string(kSpaces) + ']';
    } else if (letter == 'd') {
      out_ += R"(\p{Nd})";
    } else if (letter == 'r' || letter == 'n' || letter == 't' ||
               std::string_view(R"(\'"-./()[]{}|?*+^$ )").find(letter) != std::string_view::npos) {
      out_ += escape;
    } else {
      return unsupported(escape);
    }
    at_ += 2;
    return {};
  }

  // General categories only: scripts and properties depend on the library.
  Status translate_category() {
    static constexpr std::array<std::string_view, 36> kCategories{
        "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
        "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
        "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn"};
    const size_t end = pattern_.find('}', at_);
    const std::string_view escape =
        pattern_.substr(at_, end == std::string_view::npos ? 8 : end + 1 - at_);
    if (end == std::string_view::npos || escape.size() < 5 || escape[2] != '{' ||
        std::ranges::find(kCategories, escape.substr(3, escape.size() - 4)) == kCategories.end())
      return unsupported(escape);
    take(escape.size());
    return {};
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

// What a thread needs to match, for all patterns.
struct MatchMemory {
  MatchMemory()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(size_t{32} << 10, kJitStackBytes, nullptr)) {
    if (context == nullptr) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchMemory() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;

  pcre2_match_data* const data;
  pcre2_match_context* const context;
  pcre2_jit_stack* const stack;  // null without JIT
};

}  // namespace

struct SplitPattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const code;
};

Result<SplitPattern> SplitPattern::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return Status(StatusCode::kCorrupt,
                  "the pattern has more than " + std::to_string(kMaxPatternBytes) + " bytes");
  STOKER_ASSIGN_OR_RETURN(const std::string translated, PatternTranslator(pattern).translate());
  return compile_translated(translated, PCRE2_UCP);
}

Result<SplitPattern> SplitPattern::literal(std::string_view text) {
  return compile_translated(text, PCRE2_LITERAL);
}

Result<SplitPattern> SplitPattern::compile_translated(std::string_view pattern, unsigned options) {
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                         pattern.size(), options | PCRE2_UTF, &error, &at, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 200> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return Status(StatusCode::kCorrupt, "the pattern is not valid: " +
                                            std::string(reinterpret_cast<char*>(message.data())));
  }
  auto owned = std::make_shared<const Code>(code);
  // Not PCRE2_INFO_MINLENGTH, which can count characters that a lookahead only inspects.
  uint32_t can_be_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &can_be_empty);
  if (can_be_empty != 0) return Status(StatusCode::kCorrupt, "the pattern can match an empty text");
  // Without it, matching is slower.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  return SplitPattern(std::move(owned));
}

Result<SplitPattern::Match> SplitPattern::find(std::string_view text, size_t from,
                                               bool is_complete) const {
  thread_local const MatchMemory memory;
  if (memory.data == nullptr || memory.context == nullptr)
    return Status(StatusCode::kOutOfMemory, "not enough memory to match a pattern");
  const uint32_t options = PCRE2_NO_UTF_CHECK | (is_complete ? 0u : PCRE2_PARTIAL_HARD);
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), from, options, memory.data, memory.context);
  if (result == PCRE2_ERROR_NOMATCH)
    return Match{.end = is_complete ? Match::End::kNone : Match::End::kUnknown, .range = {}};
  if (result == PCRE2_ERROR_PARTIAL) return Match{.end = Match::End::kUnknown, .range = {}};
  if (result == PCRE2_ERROR_NOMEMORY)
    return Status(StatusCode::kOutOfMemory, "not enough memory to match a pattern");
  if (result < 0)
    return Status(StatusCode::kCorrupt,
                  "the pattern of the tokenizer takes too long or too much memory on a text");
  const size_t* const ends = pcre2_get_ovector_pointer(memory.data);
  if (ends[1] <= ends[0])
    return Status(StatusCode::kCorrupt, "the pattern of the tokenizer matches an empty text");
  return Match{.end = Match::End::kFound, .range = {.begin = ends[0], .end = ends[1]}};
}

}  // namespace stoker::tokenizer
