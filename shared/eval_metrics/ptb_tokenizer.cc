#include "shared/eval_metrics/ptb_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "shared/base/utf8.h"

namespace stoker::eval_metrics {
namespace {

using namespace std::string_view_literals;

constexpr char32_t kReplacement = 0xFFFD;

std::u32string decode(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_character_bytes(text);
    if (bytes == 0) {
      characters += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    constexpr std::array<uint8_t, 5> kFirstBits{0, 0x7f, 0x1f, 0x0f, 0x07};
    char32_t character = static_cast<uint8_t>(text[0]) & kFirstBits[bytes];
    for (size_t i = 1; i < bytes; ++i)
      character = character << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
    characters += character;
    text.remove_prefix(bytes);
  }
  return characters;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xe0 | c >> 12);
    } else {
      put(0xf0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3f));
    }
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

bool is_between(char32_t c, char32_t from, char32_t to) { return c >= from && c <= to; }

// Latin, Greek and Cyrillic.
char32_t to_lower(char32_t c) {
  if (is_between(c, 'A', 'Z') || (is_between(c, 0xC0, 0xDE) && c != 0xD7) ||
      (is_between(c, 0x391, 0x3A9) && c != 0x3A2) || is_between(c, 0x410, 0x42F))
    return c + 0x20;
  if (is_between(c, 0x400, 0x40F)) return c + 0x50;
  if (is_between(c, 0x100, 0x12F) || is_between(c, 0x132, 0x137) || is_between(c, 0x14A, 0x177))
    return c | 1;
  if (is_between(c, 0x139, 0x148) || is_between(c, 0x179, 0x17E)) return c + (c & 1);
  return c;
}

bool is_digit(char32_t c) { return is_between(c, '0', '9'); }
bool is_upper(char32_t c) { return to_lower(c) != c; }
bool is_ascii_letter(char32_t c) { return is_between(to_lower(c), 'a', 'z'); }
// Outside ASCII everything but the punctuation and the symbols of the usual blocks.
bool is_letter(char32_t c) {
  if (c < 0x80) return is_ascii_letter(c);
  if (c < 0xC0) return c == 0xAA || c == 0xB5 || c == 0xBA;
  return c != 0xD7 && c != 0xF7 && !is_between(c, 0x2000, 0x2BFF) &&
         !is_between(c, 0x3000, 0x303F) && !is_between(c, 0xE000, 0xF8FF) &&
         !is_between(c, 0xFE00, 0xFFFF) && c < 0x1F000;
}
bool is_alnum(char32_t c) { return is_letter(c) || is_digit(c); }
bool is_space(char32_t c) {
  return c == ' ' || is_between(c, '\t', '\r') || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         is_between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}
bool is_apostrophe(char32_t c) { return c == '\'' || c == 0x2019 || c == 0x92; }
bool is_vowel(char32_t c) { return U"aeiou"sv.find(to_lower(c)) != U""sv.npos; }

// Words that keep the period after them; kBeforeNumber only before a number.
constexpr std::array kAbbreviations = {
    "jan"sv,  "feb"sv, "mar"sv,  "apr"sv, "jun"sv, "jul"sv,  "aug"sv,  "sep"sv,  "sept"sv,
    "oct"sv,  "nov"sv, "dec"sv,  "mon"sv, "tue"sv, "tues"sv, "wed"sv,  "thu"sv,  "thurs"sv,
    "fri"sv,  "mr"sv,  "mrs"sv,  "ms"sv,  "dr"sv,  "drs"sv,  "prof"sv, "sen"sv,  "rep"sv,
    "lt"sv,   "col"sv, "gen"sv,  "gov"sv, "adm"sv, "rev"sv,  "maj"sv,  "sgt"sv,  "cpl"sv,
    "pvt"sv,  "mt"sv,  "capt"sv, "st"sv,  "ste"sv, "ave"sv,  "pres"sv, "hon"sv,  "brig"sv,
    "jr"sv,   "sr"sv,  "bros"sv, "ph"sv,  "inc"sv, "co"sv,   "cos"sv,  "corp"sv, "ltd"sv,
    "blvd"sv, "rd"sv,  "etc"sv,  "vs"sv,  "al"sv,  "ft"sv,   "lieut"sv};
constexpr std::array kBeforeNumber = {"no"sv, "nos"sv};

class Scanner {
 public:
  explicit Scanner(std::u32string text) : text_(std::move(text)) {}

  std::vector<std::string> run() {
    while (at_ < text_.size()) {
      if (is_space(text_[at_]))
        ++at_;
      else
        next();
    }
    return std::move(words_);
  }

 private:
  char32_t peek(size_t i) const { return i < text_.size() ? text_[i] : U' '; }
  bool ends_word(size_t i) const { return !is_alnum(peek(i)); }

  void emit(size_t end) {
    std::string word;
    for (; at_ < end; ++at_) append_utf8(to_lower(text_[at_]), word);
    words_.push_back(std::move(word));
  }
  void emit(std::string_view word, size_t end) {
    words_.emplace_back(word);
    at_ = end;
  }
  void drop(size_t end) { at_ = end; }

  bool matches(size_t i, std::string_view lower) const {
    for (const char c : lower) {
      const char32_t here = peek(i++);
      if (c == '\'' ? !is_apostrophe(here) : to_lower(here) != static_cast<char32_t>(c))
        return false;
    }
    return true;
  }

  size_t skip(size_t i, bool (*is_member)(char32_t)) const {
    while (i < text_.size() && is_member(text_[i])) ++i;
    return i;
  }

  void next() {
    const char32_t c = text_[at_];
    if (matches(at_, "-lrb-") || matches(at_, "-rrb-")) return emit(at_ + 5);
    if (address() || markup() || entity() || split_word() || numeral() || elision() || word())
      return;
    switch (c) {
      case '(':
        return emit("-lrb-", at_ + 1);
      case ')':
        return emit("-rrb-", at_ + 1);
      case '[':
        return emit("-lsb-", at_ + 1);
      case ']':
        return emit("-rsb-", at_ + 1);
      case '{':
        return emit("-lcb-", at_ + 1);
      case '}':
        return emit("-rcb-", at_ + 1);
      case 0xA3:
        return emit("#", at_ + 1);
      case 0x20AC:
      case 0x80:
      case 0xA4:
        return emit("$", at_ + 1);
      case 0xA2:
        return emit("cents", at_ + 1);
      case 0xBC:
        return emit("1/4", at_ + 1);
      case 0xBD:
        return emit("1/2", at_ + 1);
      case 0xBE:
        return emit("3/4", at_ + 1);
      default:
        break;
    }
    if (c == '!' || c == '?') {
      const size_t end = skip(at_, [](char32_t each) { return each == '!' || each == '?'; });
      return end == at_ + 1 ? drop(end) : emit(end);
    }
    if (is_removed(c)) return drop(at_ + 1);
    emit(at_ + 1);
  }

  // Punctuation that is never part of the result, alone or repeated.
  static bool is_removed(char32_t c) {
    return c == '.' || c == ',' || c == ':' || c == ';' || c == '-' || c == '"' || c == '`' ||
           is_apostrophe(c) || is_between(c, 0x2010, 0x201F) || c == 0x2026 || c == 0xAB ||
           c == 0xBB || c == 0x2039 || c == 0x203A || c == kReplacement || c < ' ';
  }

  // URLs, mail addresses, @names and #tags.
  bool address() {
    const auto is_url = [](char32_t c) { return !is_space(c) && c != '"' && c != '<' && c != '>'; };
    if (matches(at_, "http://") || matches(at_, "https://")) return emit(skip(at_, is_url)), true;
    const char32_t c = text_[at_];
    if ((c == '@' || c == '#') &&
        (is_ascii_letter(peek(at_ + 1)) || (c == '@' && peek(at_ + 1) == '_'))) {
      const auto is_tag = [](char32_t each) { return is_alnum(each) || each == '_'; };
      return emit(skip(at_ + 1, is_tag)), true;
    }
    const auto is_user = [](char32_t each) {
      return is_alnum(each) || each == '.' || each == '_' || each == '-' || each == '+';
    };
    if (!is_alnum(c)) return false;
    const size_t at = skip(at_, is_user);
    if (peek(at) != '@' || !is_alnum(peek(at + 1))) return false;
    const auto is_host = [](char32_t each) { return is_alnum(each) || each == '.' || each == '-'; };
    size_t end = skip(at + 1, is_host);
    while (peek(end - 1) == '.') --end;
    if (std::find(text_.begin() + static_cast<std::ptrdiff_t>(at),
                  text_.begin() + static_cast<std::ptrdiff_t>(end),
                  U'.') == text_.begin() + static_cast<std::ptrdiff_t>(end))
      return false;
    return emit(end), true;
  }

  bool markup() {
    if (text_[at_] != '<') return false;
    const char32_t first = peek(at_ + 1);
    if (!is_ascii_letter(first) && first != '/' && first != '!' && first != '?') return false;
    const size_t end = text_.find_first_of(U"<>\n", at_ + 1);
    if (end == std::u32string::npos || text_[end] != '>') return false;
    return emit(end + 1), true;
  }

  bool entity() {
    if (text_[at_] != '&') return false;
    for (const auto& [name, word] :
         {std::pair("&amp;"sv, "&"sv), {"&lt;"sv, "<"sv}, {"&gt;"sv, ">"sv}})
      if (matches(at_, name)) return emit(word, at_ + name.size()), true;
    return false;
  }

  // Words that are two.
  bool split_word() {
    for (const auto& [word, first] : {std::pair("cannot"sv, size_t{3}),
                                      {"gonna"sv, 3},
                                      {"gotta"sv, 3},
                                      {"wanna"sv, 3},
                                      {"lemme"sv, 3},
                                      {"gimme"sv, 3},
                                      {"'tis"sv, 2},
                                      {"'twas"sv, 2}}) {
      if (!matches(at_, word) || !ends_word(at_ + word.size())) continue;
      const size_t end = at_ + word.size();
      if (peek(end) == '-' && is_alnum(peek(end + 1))) continue;
      emit(at_ + first);
      emit(end);
      return true;
    }
    if (matches(at_, "y'all") && ends_word(at_ + 5)) {
      emit("y'", at_ + 2);
      return true;
    }
    return false;
  }

  bool numeral() {
    const bool is_signed = (text_[at_] == '-' || text_[at_] == '+') && is_digit(peek(at_ + 1));
    if (is_signed) {
      size_t end = skip(at_ + 1, is_digit);
      while ((peek(end) == '.' || peek(end) == ',' || peek(end) == ':') && is_digit(peek(end + 1)))
        end = skip(end + 1, is_digit);
      if (ends_word(end)) return emit(end), true;
    }
    const bool has_point = text_[at_] == '.' && is_digit(peek(at_ + 1));
    if (!is_digit(text_[at_]) && !has_point) return false;
    size_t end = has_point ? at_ : skip(at_, is_digit);
    while ((peek(end) == '.' || peek(end) == ',' || peek(end) == ':') && is_digit(peek(end + 1)))
      end = skip(end + 1, is_digit);
    const bool is_plain = end == skip(at_, is_digit);
    // "1/2", "3/4/2014", "24/7"
    if (is_plain && peek(end) == '/' && is_digit(peek(end + 1)) && end - at_ <= 4) {
      const size_t second = skip(end + 1, is_digit);
      if (ends_word(second)) {
        end = second;
        if (peek(end) == '/' && is_digit(peek(end + 1))) end = skip(end + 1, is_digit);
        return emit(end), true;
      }
    }
    if (is_plain && (is_letter(peek(end)) || (peek(end) == '-' && is_alnum(peek(end + 1)))))
      return false;
    return emit(end), true;
  }

  // Apostrophes that begin a word or are within one.
  bool elision() {
    if (is_apostrophe(text_[at_])) {
      for (const std::string_view word : {"'n'"sv, "'em"sv, "'cause"sv, "'n"sv})
        if (matches(at_, word) &&
            (is_apostrophe(peek(at_ + word.size() - 1)) || ends_word(at_ + word.size())))
          return emit_elision(word.size());
      if (is_between(peek(at_ + 1), '2', '9') && peek(at_ + 2) == '0' && peek(at_ + 3) == 's' &&
          ends_word(at_ + 4))
        return emit_elision(4);
      for (const std::string_view word : {"'s"sv, "'m"sv, "'d"sv, "'re"sv, "'ve"sv, "'ll"sv})
        if (matches(at_, word) && ends_word(at_ + word.size())) return emit_elision(word.size());
      return false;
    }
    return false;
  }
  bool emit_elision(size_t characters) {
    const size_t from = words_.size();
    emit(at_ + characters);
    std::string& word = words_[from];
    // U+2019 is written as an apostrophe.
    for (size_t found; (found = word.find("\xE2\x80\x99")) != std::string::npos;)
      word.replace(found, 3, "'");
    return true;
  }

  static bool is_auxiliary_end(const Scanner& scanner, size_t apostrophe) {
    for (const std::string_view word : {"'s"sv, "'m"sv, "'d"sv, "'re"sv, "'ve"sv, "'ll"sv})
      if (scanner.matches(apostrophe, word) && scanner.ends_word(apostrophe + word.size()))
        return true;
    return false;
  }

  bool word() {
    if (!is_alnum(text_[at_])) return false;
    size_t end = skip(at_, is_alnum);
    // "o'clock", "D'Angelo", "ma'am"
    if (is_apostrophe(peek(end)) && is_letter(peek(end + 1)) && !is_auxiliary_end(*this, end)) {
      const char32_t last = peek(end - 1), after = peek(end + 1);
      const size_t whole = skip(end + 1, is_letter);
      const bool is_short = end == at_ + 1 && (is_upper(last) ? last != 'I' && last != 'Y'
                                                              : last == 'd' || last == 'o' ||
                                                                    last == 'l' || last == 'n');
      const bool is_inner =
          end > at_ + 1 && (is_vowel(last) || last == 'y') && (is_vowel(after) || is_upper(after));
      const bool is_negation =
          (last == 'n' || last == 'N') && (after == 't' || after == 'T') && ends_word(end + 2);
      if (!is_negation && ((is_short && whole > end + 1) || is_inner || matches(at_, "c'mon") ||
                           matches(at_, "e'er"))) {
        size_t all = whole;
        while (peek(all) == '-' && is_letter(peek(all + 1))) all = skip(all + 1, is_letter);
        return emit_elision(all - at_);
      }
    }
    // "is n't"
    if ((peek(end - 1) == 'n' || peek(end - 1) == 'N') && is_apostrophe(peek(end)) &&
        to_lower(peek(end + 1)) == 't' && ends_word(end + 2)) {
      if (end - 1 > at_) emit(end - 1);
      return emit_elision(end + 2 - at_);
    }
    if (acronym()) return true;
    // "AT&T"
    const auto is_capital = [](char32_t c) { return is_between(c, 'A', 'Z'); };
    if (skip(at_, is_capital) == end) {
      size_t more = end;
      while ((peek(more) == '&' || peek(more) == '+') && is_capital(peek(more + 1)))
        more = skip(more + 1, is_capital);
      if (more > end && ends_word(more)) return emit(more), true;
    }
    if (peek(end) == '+' && peek(end + 1) == '+' && end == at_ + 1) return emit(end + 2), true;
    // "snow.the" is one word, as Stanford's tokenizer has it.
    const auto extend_periods = [this](size_t from) {
      while ((peek(from) == '.' || peek(from) == '?' || peek(from) == '!') &&
             is_letter(peek(from + 1)))
        from = skip(from + 1, is_alnum);
      return from;
    };
    if (is_letter(text_[at_])) end = extend_periods(end);
    // "10-year-old"
    size_t hyphenated = end;
    while (peek(hyphenated) == '-' && is_alnum(peek(hyphenated + 1)))
      hyphenated = skip(hyphenated + 1, is_alnum);
    // "red/white/blue"
    size_t slashed = hyphenated;
    for (int parts = 0; parts < 2 && peek(slashed) == '/' && is_alnum(peek(slashed + 1)); ++parts) {
      slashed = skip(slashed + 1, is_alnum);
      while (peek(slashed) == '-' && is_letter(peek(slashed + 1)))
        slashed = skip(slashed + 1, is_letter);
    }
    if (slashed > hyphenated) return emit(slashed), true;
    if (hyphenated > end) return emit(hyphenated), true;
    const auto is_inner = [](char32_t c) { return c == ',' || c == ';' || c == ':'; };
    if (peek(end) == '.' && (is_inner(peek(end + 1)) || is_abbreviation(end)))
      return emit(end + 1), true;
    return emit(end), true;
  }

  // "U.S.", "a.m.", "J."
  bool acronym() {
    size_t end = at_;
    while (is_ascii_letter(peek(end)) && peek(end + 1) == '.') end += 2;
    if (end == at_ || is_alnum(peek(end))) return false;
    return emit(end), true;
  }

  bool is_abbreviation(size_t end) const {
    std::string here;
    for (size_t i = at_; i < end; ++i) append_utf8(to_lower(text_[i]), here);
    if (std::ranges::find(kAbbreviations, here) != kAbbreviations.end()) return true;
    return std::ranges::find(kBeforeNumber, here) != kBeforeNumber.end() &&
           is_space(peek(end + 1)) && is_digit(peek(end + 2));
  }

  const std::u32string text_;
  size_t at_ = 0;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<std::string> ptb_words(std::string_view caption) {
  return Scanner(decode(caption)).run();
}

}  // namespace stoker::eval_metrics
