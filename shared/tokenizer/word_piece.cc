#include "shared/tokenizer/word_piece.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::tokenizer {
namespace {

using Character = utf8proc_int32_t;

Character next_character(std::string_view& text) {
  Character character = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &character);
  assert(bytes > 0);
  text.remove_prefix(bytes > 0 ? static_cast<size_t>(bytes) : 1);
  return character;
}

void append(Character character, std::string& out) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto size = utf8proc_encode_char(character, bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

bool is_ascii(Character character) { return character < 0x80; }

// The categories of tokenizers are those of Unicode 8, in which these characters had none. Only what is
// punctuation, a mark or a format character here needs to be in a range.
constexpr std::array<std::pair<Character, Character>, 41> kNewerCharacters{{
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x8e2},     {0x9fd, 0x9fe},
    {0xa76, 0xa76},     {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc3c},
    {0xc77, 0xc77},     {0xc84, 0xc84},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x1886},
    {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},
    {0x10d24, 0x10f89}, {0x11070, 0x11074}, {0x110c2, 0x110cd}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1145e},
    {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11fff}, {0x12ff1, 0x13455},
    {0x16e97, 0x16f4f}, {0x16fe2, 0x16fe4}, {0x1cf00, 0x1cf46}, {0x1e000, 0x1e4ef},
    {0x1e944, 0x1e95f},
}};

bool is_newer(Character character) {
  const auto after = std::ranges::upper_bound(kNewerCharacters, character, {},
                                              &std::pair<Character, Character>::first);
  return after != kNewerCharacters.begin() && character <= std::prev(after)->second;
}

utf8proc_category_t category_of(Character character) {
  constexpr Character kChiSign = 0x166d, kSandhiMark = 0x111c9, kPamudpod = 0x1734;  // changed
  if (character == kChiSign || character == kSandhiMark) return UTF8PROC_CATEGORY_PO;
  if (character == kPamudpod) return UTF8PROC_CATEGORY_MN;
  return is_newer(character) ? UTF8PROC_CATEGORY_CN : utf8proc_category(character);
}

// Unicode's White_Space.
bool is_space(Character character) {
  if (is_ascii(character)) return character == ' ' || (character >= '\t' && character <= '\r');
  const auto category = utf8proc_category(character);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP || character == 0x85;
}

// Neither printed nor a space.
bool is_removed(Character character) {
  if (character == 0 || character == 0xfffd) return true;
  if (character == '\t' || character == '\n' || character == '\r') return false;
  switch (category_of(character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
      return true;
    default:
      return false;
  }
}

bool is_punctuation(Character character) {
  if (is_ascii(character))
    return character > ' ' && character < 0x7f &&
           !((character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
             (character >= 'A' && character <= 'Z'));
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

// Each is a separate word. The ranges are those of tokenizers, which lacks 2B820 to 2B91F.
bool is_ideograph(Character character) {
  constexpr std::array<std::pair<Character, Character>, 8> kRanges{{{0x4e00, 0x9fff},
                                                                    {0x3400, 0x4dbf},
                                                                    {0x20000, 0x2a6df},
                                                                    {0x2a700, 0x2b73f},
                                                                    {0x2b740, 0x2b81f},
                                                                    {0x2b920, 0x2ceaf},
                                                                    {0xf900, 0xfaff},
                                                                    {0x2f800, 0x2fa1f}}};
  return character >= 0x3400 && std::ranges::any_of(kRanges, [&](const auto& range) {
           return character >= range.first && character <= range.second;
         });
}

// In normalization form D, without the marks that take no space.
std::vector<Character> without_accents(const std::vector<Character>& characters) {
  std::vector<Character> parts;
  for (const Character character : characters) {
    if (is_newer(character)) {
      parts.push_back(character);
      continue;
    }
    std::array<Character, 16> decomposed{};  // canonical: at most 4
    int boundary = 0;
    const auto count = utf8proc_decompose_char(character, decomposed.data(), decomposed.size(),
                                               UTF8PROC_DECOMPOSE, &boundary);
    parts.insert(parts.end(), decomposed.begin(), decomposed.begin() + std::max<long>(count, 0));
  }
  const auto class_of = [](Character character) -> int {
    return is_newer(character) ? 0 : utf8proc_get_property(character)->combining_class;
  };
  for (auto at = parts.begin(); at != parts.end();) {
    const auto first = std::find_if(at, parts.end(), [&](Character c) { return class_of(c) != 0; });
    at = std::find_if(first, parts.end(), [&](Character c) { return class_of(c) == 0; });
    std::ranges::stable_sort(first, at, {}, class_of);
  }
  std::erase_if(parts,
                [](Character character) { return category_of(character) == UTF8PROC_CATEGORY_MN; });
  return parts;
}

// Capital letters of Unicode 16 and 17, whose lower case tokenizers knows and utf8proc 2.8 does not.
struct NewCapitals {
  Character first, last, lower;  // of the first
};
constexpr std::array<NewCapitals, 10> kNewCapitals{{{0x1c89, 0x1c89, 0x1c8a},
                                                    {0xa7cb, 0xa7cb, 0x264},
                                                    {0xa7cc, 0xa7cc, 0xa7cd},
                                                    {0xa7ce, 0xa7ce, 0xa7cf},
                                                    {0xa7d2, 0xa7d2, 0xa7d3},
                                                    {0xa7d4, 0xa7d4, 0xa7d5},
                                                    {0xa7da, 0xa7da, 0xa7db},
                                                    {0xa7dc, 0xa7dc, 0x19b},
                                                    {0x10d50, 0x10d65, 0x10d70},
                                                    {0x16ea0, 0x16eb8, 0x16ebb}}};

Character lowercase_of(Character character) {
  if (character >= kNewCapitals.front().first)
    for (const NewCapitals& range : kNewCapitals)
      if (character >= range.first && character <= range.last)
        return range.lower + (character - range.first);
  return utf8proc_tolower(character);
}

void append_lowercase(Character character, std::string& out) {
  constexpr Character kCapitalDottedI = 0x130;
  append(lowercase_of(character), out);
  if (character == kCapitalDottedI) append(0x307, out);  // the only one with two characters
}

}  // namespace

WordPiece::WordPiece(WordPieceSettings settings, const TokenIds& vocabulary)
    : settings_(std::move(settings)), first_(vocabulary) {
  const std::string_view prefix = settings_.continuing_subword_prefix;
  for (const auto& [token, id] : vocabulary) {
    max_token_bytes_ = std::max(max_token_bytes_, token.size());
    if (std::string_view(token).starts_with(prefix))
      continuing_.emplace(token.substr(prefix.size()), id);
  }
}

std::string WordPiece::normalize(std::string_view text) const {
  std::vector<Character> characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    Character character = next_character(text);
    if (settings_.clean_text) {
      if (is_removed(character)) continue;
      if (is_space(character)) character = ' ';
    }
    const bool is_alone = settings_.handle_chinese_chars && is_ideograph(character);
    if (is_alone) characters.push_back(' ');
    characters.push_back(character);
    if (is_alone) characters.push_back(' ');
  }
  if (settings_.strip_accents && !std::ranges::all_of(characters, is_ascii))
    characters = without_accents(characters);
  std::string out;
  out.reserve(characters.size());
  for (const Character character : characters)
    settings_.lowercase ? append_lowercase(character, out) : append(character, out);
  return out;
}

void WordPiece::encode(std::string_view normalized, std::vector<int32_t>& ids) const {
  const char* word = normalized.data();
  const auto end_word = [&](const char* end) {
    if (end > word) encode_word({word, static_cast<size_t>(end - word)}, ids);
  };
  for (std::string_view rest = normalized; !rest.empty();) {
    const char* const begin = rest.data();
    const Character character = next_character(rest);
    const bool is_mark = is_punctuation(character);
    if (!is_mark && !is_space(character)) continue;
    end_word(begin);
    word = rest.data();
    if (is_mark) encode_word({begin, static_cast<size_t>(word - begin)}, ids);
  }
  end_word(normalized.data() + normalized.size());
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  const size_t first_id = ids.size();
  const auto fail = [&] {
    ids.resize(first_id);
    ids.push_back(settings_.unknown_token);
  };
  if (static_cast<size_t>(std::ranges::count_if(word, is_start)) >
      settings_.max_input_chars_per_word)
    return fail();
  for (size_t at = 0; at < word.size();) {
    const TokenIds& tokens = at == 0 ? first_ : continuing_;
    size_t bytes = std::min(word.size() - at, max_token_bytes_);
    auto token = tokens.end();
    for (; bytes > 0; --bytes) {
      const bool ends_character = at + bytes == word.size() || is_start(word[at + bytes]);
      if (!ends_character) continue;
      token = tokens.find(word.substr(at, bytes));
      if (token != tokens.end()) break;
    }
    if (token == tokens.end()) return fail();
    ids.push_back(token->second);
    at += bytes;
  }
}

bool WordPiece::has_space(std::string_view text) {
  while (!text.empty())
    if (is_space(next_character(text))) return true;
  return false;
}

std::string WordPiece::text_of(std::string_view token) const {
  const std::string_view prefix = settings_.continuing_subword_prefix;
  const bool continues = !prefix.empty() && token.starts_with(prefix);
  return continues ? std::string(token.substr(prefix.size())) : ' ' + std::string(token);
}

}  // namespace stoker::tokenizer
