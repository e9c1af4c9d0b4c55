#include "shared/tokenizer/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/utf8.h"
#include "shared/tokenizer/tokenizer_model.h"

namespace stoker::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the longest start of a character that is not complete or not valid: at least 1.
// `is_open`: more bytes could complete it.
size_t maximal_part(std::string_view text, bool& is_open) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first >= 0xf0 && first <= 0xf4   ? 4
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xc2 && first <= 0xdf ? 2
                                                         : 1;
  size_t bytes = 1;
  // A part is valid if continuation bytes complete it.
  for (; bytes < length && bytes < text.size(); ++bytes) {
    std::string completed(text.substr(0, bytes + 1));
    completed.resize(length, '\x80');
    if (utf8_character_bytes(completed) == 0) break;
  }
  is_open = bytes < length && bytes == text.size();
  return bytes;
}

// The text with U+FFFD for what is not UTF-8. A character that can continue after an incomplete
// text is not included; `whole_bytes` is the number of bytes before it.
MappedText replace_invalid(std::string_view text, bool is_complete, size_t& whole_bytes) {
  MappedText clean;
  size_t copied = 0, at = 0;
  whole_bytes = text.size();
  while (at < text.size()) {
    const size_t bytes = utf8_character_bytes(text.substr(at));
    if (bytes > 0) {
      at += bytes;
      continue;
    }
    bool is_open = false;
    const size_t invalid = maximal_part(text.substr(at), is_open);
    if (is_open && !is_complete) {
      whole_bytes = at;
      break;
    }
    clean.text += text.substr(copied, at - copied);
    const size_t out = clean.text.size();
    clean.text += kReplacement;
    clean.changes.push_back({.out = {.begin = out, .end = clean.text.size()},
                             .in = {.begin = at, .end = at + invalid}});
    at += invalid;
    copied = at;
  }
  if (!clean.changes.empty()) clean.text += text.substr(copied, at - copied);
  return clean;
}

}  // namespace

std::optional<size_t> MappedText::original(size_t at) const {
  const auto after = std::ranges::upper_bound(
      changes, at, {}, [](const Change& change) { return change.out.begin; });
  if (after == changes.begin()) return at;
  const Change& change = *std::prev(after);
  if (at == change.out.begin) return change.in.begin;
  if (at < change.out.end) return std::nullopt;
  return change.in.end + (at - change.out.end);
}

namespace {

int combining_class(int32_t character) { return utf8proc_get_property(character)->combining_class; }

// Normalization form C. Marks are sorted here, because utf8proc takes quadratic time for many.
Result<std::string> compose(std::string_view text) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size() + 1);
  while (!text.empty()) {
    utf8proc_int32_t character = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(text.size()), &character);
    if (bytes <= 0) return Status(StatusCode::kCorrupt, "a text to normalize is not UTF-8");
    std::array<utf8proc_int32_t, 16> parts{};  // canonical: at most 4
    int boundary = 0;
    const auto num_parts =
        utf8proc_decompose_char(character, parts.data(), parts.size(), kOptions, &boundary);
    characters.insert(characters.end(), parts.begin(), parts.begin() + num_parts);
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  const auto is_mark = [](int32_t character) { return combining_class(character) != 0; };
  for (auto at = characters.begin(); at != characters.end();) {
    const auto first = std::find_if(at, characters.end(), is_mark);
    at = std::find_if_not(first, characters.end(), is_mark);
    std::ranges::stable_sort(first, at, {}, combining_class);
  }
  const auto size = static_cast<utf8proc_ssize_t>(characters.size());
  characters.push_back(0);  // space for the terminating byte
  const auto bytes = utf8proc_reencode(characters.data(), size, kOptions);
  if (bytes < 0) return Status(StatusCode::kInternal, utf8proc_errmsg(bytes));
  return std::string(reinterpret_cast<const char*>(characters.data()), static_cast<size_t>(bytes));
}

}  // namespace

Result<MappedText> normalize_nfc(std::string_view text) {
  MappedText normal;
  size_t copied = 0;
  // No ASCII character composes with the one before it, so that the text can be normalized in
  // segments that start with one.
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
    if (end > begin + 1 || static_cast<unsigned char>(text[begin]) >= 0x80) {
      STOKER_ASSIGN_OR_RETURN(const std::string composed, compose(text.substr(begin, end - begin)));
      if (composed != text.substr(begin, end - begin)) {
        normal.text += text.substr(copied, begin - copied);
        const size_t out = normal.text.size();
        normal.text += composed;
        normal.changes.push_back(
            {.out = {.begin = out, .end = normal.text.size()}, .in = {.begin = begin, .end = end}});
        copied = end;
      }
    }
    begin = end;
  }
  normal.text += text.substr(copied);
  return normal;
}

// ---- Added tokens

void AddedTokens::add(std::string content, int32_t id) {
  assert(!content.empty());
  max_bytes_ = std::max(max_bytes_, content.size());
  auto& lengths = lengths_[static_cast<unsigned char>(content[0])];
  const auto at = std::ranges::lower_bound(lengths, content.size(), std::greater<>());
  if (at == lengths.end() || *at != content.size()) lengths.insert(at, content.size());
  ids_.emplace(std::move(content), id);
}

size_t AddedTokens::searched_end(std::string_view text, bool is_complete) const {
  if (is_complete || empty()) return text.size();
  size_t end = text.size() - std::min(text.size(), max_bytes_ - 1);
  while (end > 0 && end < text.size() && is_continuation(text[end])) --end;
  return end;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from,
                                                    bool is_complete) const {
  if (empty()) return std::nullopt;
  const size_t end = searched_end(text, is_complete);
  for (size_t at = from; at < end; ++at) {
    for (const size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto token = ids_.find(text.substr(at, length));
      if (token != ids_.end())
        return Match{.range = {.begin = at, .end = at + length}, .id = token->second};
    }
  }
  return std::nullopt;
}

// ---- Tokenizer

Tokenizer::Tokenizer(TokenizerModel model, std::string digest)
    : model_(std::make_unique<const TokenizerModel>(std::move(model))),
      digest_(std::move(digest)) {}
Tokenizer::~Tokenizer() = default;

uint64_t Tokenizer::size() const { return model_->tokens.size(); }
std::optional<int32_t> Tokenizer::end_token() const { return model_->end_token; }

const TextTemplate& Tokenizer::text_template() const { return model_->text_template; }

std::string_view Tokenizer::bytes_of(int64_t id) const {
  if (id < 0 || static_cast<uint64_t>(id) >= size()) return {};
  return model_->tokens[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += bytes_of(id);
  return text;
}

bool is_tokenizer_json(std::string_view file) {
  const size_t first = file.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && file[first] == '{';
}

namespace {

bool is_sentence_piece(std::string_view file) {
  // Protocol buffers: field 1, a piece, of a few bytes; it starts with field 1, its text.
  return file.size() > 3 && file[0] == '\n' && file[2] == '\n';
}

bool is_tiktoken(std::string_view file) {
  const std::string_view line = file.substr(0, file.find('\n'));
  const size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && space % 4 == 0 &&
         line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
}

Result<TokenizerModel> parse_model(std::string_view file) {
  if (is_tokenizer_json(file)) return parse_tokenizer_json(file);
  if (is_sentence_piece(file)) return parse_sentence_piece(file);
  if (is_tiktoken(file)) return parse_tiktoken(file);
  return Status(
      StatusCode::kCorrupt,
      "is no tokenizer: neither a tokenizer.json of Hugging Face nor a .tiktoken file nor "
      "a SentencePiece model");
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view file,
                                                          const std::string& name) {
  auto model = parse_model(file);
  if (!model) return model.status().with_context(name);
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<Tokenizer>(*std::move(model), sha256_hex(file)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::read(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string file, read_file(path, kMaxFileBytes));
  // A dataset needs it for its fingerprint, its index and its samples.
  static std::mutex mutex;
  static std::shared_ptr<const Tokenizer> last;
  const std::lock_guard lock(mutex);
  if (last == nullptr || last->digest() != sha256_hex(file)) {
    STOKER_ASSIGN_OR_RETURN(last, parse(file, path));
  }
  return last;
}

bool Tokenizer::is_lossless() const {
  return !model_->maybe_sentence_piece && !model_->maybe_word_piece && !model_->adds_prefix_space &&
         std::ranges::all_of(model_->splits, &Split::keeps_rest);
}

Result<std::string> Tokenizer::normalized(std::string_view text) const {
  if (!model_->normalizes_nfc) return std::string(text);
  STOKER_ASSIGN_OR_RETURN(MappedText mapped, normalize_nfc(text));
  return std::move(mapped.text);
}

// ---- Encoding

// Encodes one part: replaces invalid bytes, finds added tokens, normalizes, splits and merges. After
// each piece whose end is known in the original text it commits, so that an incomplete part ends
// there.
class TextEncoder::PartEncoder {
 public:
  PartEncoder(const TokenizerModel& model, BytePairEncoding::Memory& memory, Part part,
              std::vector<int32_t>& ids)
      : model_(model),
        memory_(memory),
        is_complete_(part.ends_text),
        begins_section_(part.begins_section),
        ids_(ids),
        num_ids_(ids.size()) {}

  Result<Encoded> encode(std::string_view text) {
    committed_ = {.bytes = 0, .begins_section = begins_section_};
    size_t whole_bytes = 0;
    MappedText replaced = replace_invalid(text, is_complete_, whole_bytes);
    if (replaced.changes.empty()) {
      clean_ = text.substr(0, whole_bytes);
    } else {
      replaced_ = std::move(replaced);
      clean_ = replaced_.text;
    }
    STOKER_RETURN_IF_ERROR(encode_clean());
    if (is_complete_) return Encoded{.bytes = text.size(), .begins_section = true};
    ids_.resize(num_ids_);
    return committed_;
  }

 private:
  // Text between two added tokens.
  struct Section {
    std::string_view text;
    size_t begin = 0;  // in clean_
    bool is_complete = false;
  };

  Status encode_clean() {
    for (size_t at = 0;;) {
      const auto match = model_.raw_tokens.find(clean_, at, is_complete_);
      const size_t end =
          match ? match->range.begin : model_.raw_tokens.searched_end(clean_, is_complete_);
      if (end > at)
        STOKER_RETURN_IF_ERROR(encode_section({.text = clean_.substr(at, end - at),
                                               .begin = at,
                                               .is_complete = match || is_complete_}));
      if (!match) return {};
      add_token(match->id);
      at = match->range.end;
      commit(at);
    }
  }

  Status encode_section(const Section& section) {
    if (!model_.normalizes_nfc) return encode_normal(section, section.text, nullptr);
    STOKER_ASSIGN_OR_RETURN(const MappedText normal, normalize_nfc(section.text));
    return encode_normal(section, normal.text, &normal);
  }

  // `text`: the normalized section. In an incomplete section its last segment can change.
  Status encode_normal(const Section& section, std::string_view text,
                       const MappedText* maybe_normal) {
    section_ = section;
    maybe_normal_ = maybe_normal;
    if (maybe_normal != nullptr && !section.is_complete) {
      size_t last = text.size();
      while (last > 0 && static_cast<unsigned char>(text[last - 1]) >= 0x80) --last;
      text = text.substr(0, last > 0 ? last - 1 : 0);
    }
    for (size_t at = 0;;) {
      const auto match = model_.normalized_tokens.find(text, at, section.is_complete);
      const size_t end = match ? match->range.begin
                               : model_.normalized_tokens.searched_end(text, section.is_complete);
      if (end > at)
        STOKER_RETURN_IF_ERROR(
            split_text(text.substr(at, end - at), at, match || section.is_complete));
      if (!match) return {};
      add_token(match->id);
      at = match->range.end;
      commit_normal(at);
    }
  }

  void add_token(int32_t id) {
    ids_.push_back(id);
    begins_section_ = true;
  }
  void commit(size_t clean_at) {
    const auto at = replaced_.original(clean_at);
    if (!at) return;
    committed_ = {.bytes = *at, .begins_section = begins_section_};
    num_ids_ = ids_.size();
  }
  void commit_normal(size_t at) {
    if (is_complete_) return;
    const auto in_section = maybe_normal_ != nullptr ? maybe_normal_->original(at) : at;
    if (in_section) commit(section_.begin + *in_section);
  }

  // `at`: of the text in its section.
  Status split_text(std::string_view text, size_t at, bool is_complete) {
    std::string with_space;
    const bool adds_space = model_.adds_prefix_space && begins_section_ && text[0] != ' ';
    if (adds_space) text = with_space = ' ' + std::string(text);
    begins_section_ = false;
    // Positions are those after the space; none is committed within it.
    return split(0, text, at, adds_space ? 1 : 0, is_complete);
  }

  // `added`: bytes at the start of the text that are not in its section.
  Status split(size_t depth, std::string_view text, size_t at, size_t added, bool is_complete) {
    const auto commit_piece = [&](size_t end) {
      if (depth == 0 && end > added) commit_normal(at + end - added);
    };
    if (depth == model_.splits.size()) {
      if (!is_complete) return {};  // the whole section is one piece
      model_.bytes.encode(text, memory_, ids_);
      commit_piece(text.size());
      return {};
    }
    const Split& split_by = model_.splits[depth];
    const auto add_piece = [&](size_t begin, size_t end) {
      return split(depth + 1, text.substr(begin, end - begin), at, added, true);
    };
    for (size_t from = 0; from < text.size();) {
      STOKER_ASSIGN_OR_RETURN(const SplitPattern::Match match,
                              split_by.pattern.find(text, from, is_complete));
      if (match.end == SplitPattern::Match::End::kUnknown) return {};
      const bool is_found = match.end == SplitPattern::Match::End::kFound;
      const size_t rest = is_found ? match.range.begin : text.size();
      if (rest > from && split_by.keeps_rest) STOKER_RETURN_IF_ERROR(add_piece(from, rest));
      if (is_found) STOKER_RETURN_IF_ERROR(add_piece(match.range.begin, match.range.end));
      from = is_found ? match.range.end : text.size();
      commit_piece(from);
    }
    return {};
  }

  // Constant.
  const TokenizerModel& model_;
  BytePairEncoding::Memory& memory_;
  const bool is_complete_;

  bool begins_section_;
  MappedText replaced_;
  std::string_view clean_;
  Section section_;
  const MappedText* maybe_normal_ = nullptr;  // of section_
  std::vector<int32_t>& ids_;
  Encoded committed_;
  size_t num_ids_;  // committed
};

namespace {

// Each run of text between two added tokens that are found in it. `encode_rest(text)`: a run.
void split_at_tokens(const AddedTokens& tokens, std::string_view text, std::vector<int32_t>& ids,
                     const auto& encode_rest) {
  for (size_t at = 0; at < text.size();) {
    const auto match = tokens.find(text, at, /*is_complete=*/true);
    const size_t end = match ? match->range.begin : text.size();
    if (end > at) encode_rest(text.substr(at, end - at));
    if (!match) return;
    ids.push_back(match->id);
    at = match->range.end;
  }
}

// Words end at spaces, so that a text that is not complete is encoded up to its last one.
size_t encode_word_pieces(const TokenizerModel& model, std::string_view text, bool is_complete,
                          std::vector<int32_t>& ids) {
  if (!is_complete) {
    const size_t space = text.find_last_of(" \t\r\n");
    text = text.substr(0, space == std::string_view::npos ? 0 : space);
  }
  size_t whole_bytes = 0;
  const MappedText replaced = replace_invalid(text, /*is_complete=*/true, whole_bytes);
  const std::string_view clean = replaced.changes.empty() ? text : replaced.text;
  const WordPiece& pieces = *model.maybe_word_piece;
  split_at_tokens(model.raw_tokens, clean, ids, [&](std::string_view section) {
    const std::string normal = pieces.normalize(section);
    split_at_tokens(model.normalized_tokens, normal, ids,
                    [&](std::string_view run) { pieces.encode(run, ids); });
  });
  return text.size();
}

}  // namespace

TextEncoder::TextEncoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {}

Result<TextEncoder::Encoded> TextEncoder::encode_part(std::string_view text, Part part,
                                                      std::vector<int32_t>& ids) {
  if (const auto& pieces = tokenizer_->model_->maybe_sentence_piece) {
    const size_t bytes = pieces->encode(text, part.begins_section, part.ends_text, ids);
    return Encoded{.bytes = bytes,
                   .begins_section = part.ends_text || (part.begins_section && bytes == 0)};
  }
  if (tokenizer_->model_->maybe_word_piece)
    return Encoded{.bytes = encode_word_pieces(*tokenizer_->model_, text, part.ends_text, ids),
                   .begins_section = false};
  return PartEncoder(*tokenizer_->model_, memory_, part, ids).encode(text);
}

Status TextEncoder::encode(std::string_view text, std::vector<int32_t>& ids) {
  return encode_part(text, {}, ids).status();
}

}  // namespace stoker::tokenizer
