#include "shared/tokenizer/sentence_piece.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::tokenizer {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD
constexpr float kUnknownPenalty = 10;                               // below the least likely piece
constexpr double kUserDefinedPenalty = 0.1;
constexpr size_t kMaxReplacementBytes = 256;
// Of a text that is replaced; above that of every key of the published models. A longer one could
// take quadratic time.
constexpr size_t kMaxReplacedBytes = 256;
constexpr size_t kMaxPieceBytesTotal = size_t{16} << 20;

Status invalid_model(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

// By its first byte, as SentencePiece does.
size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  return std::min(bytes, text.size());
}

// "<0x0A>"; -1: not a byte.
int byte_of(std::string_view piece) {
  int byte = -1;
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const char* const end = piece.data() + 5;
  return std::from_chars(piece.data() + 3, end, byte, 16).ptr == end ? byte : -1;
}

// A piece that continues after a space, other than with spaces, or ends with one.
bool crosses_space(std::string_view piece) {
  const size_t word = [&] {
    size_t at = 0;
    while (piece.substr(at).starts_with(kSpace)) at += kSpace.size();
    return at;
  }();
  const std::string_view rest = piece.substr(word);
  return rest.find(kSpace) != std::string_view::npos || rest.find(' ') != std::string_view::npos;
}

}  // namespace

// ---- Normalization

Result<CharsMap> CharsMap::parse(std::string_view blob) {
  CharsMap map;
  if (blob.empty()) return map;
  const auto broken = [] {
    return invalid_model("normalizer_spec.precompiled_charsmap: is not a valid table");
  };
  uint32_t bytes = 0;
  if (blob.size() < sizeof bytes) return broken();
  std::memcpy(&bytes, blob.data(), sizeof bytes);
  blob.remove_prefix(sizeof bytes);
  if (bytes > blob.size() || bytes == 0 || bytes % sizeof(uint32_t) != 0) return broken();
  map.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data(), bytes);
  map.strings_ = blob.substr(bytes);
  if (!map.strings_.ends_with('\0') || valid_utf8(map.strings_) != map.strings_) return broken();
  for (size_t at = 0; at < map.strings_.size();) {
    const size_t size = std::strlen(map.strings_.c_str() + at);
    if (size > kMaxReplacementBytes) return broken();
    at += size + 1;
  }
  return map;
}

CharsMap::Match CharsMap::find(std::string_view text) const {
  Match match;
  if (units_.empty()) return match;
  const auto offset_of = [](uint32_t unit) -> size_t {
    return static_cast<size_t>(unit >> 10) << ((unit & (1U << 9)) >> 6);
  };
  size_t node = offset_of(units_[0]);
  text = text.substr(0, kMaxReplacedBytes);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & ((1U << 31) | 0xff)) != byte) break;  // its label
    node ^= offset_of(unit);
    const bool has_leaf = ((unit >> 8) & 1) != 0;
    if (!has_leaf || node >= units_.size()) continue;
    const size_t at = units_[node] & ((1U << 31) - 1);
    if (at >= strings_.size()) break;
    match = {.bytes = i + 1, .replacement = strings_.c_str() + at};
  }
  return match;
}

size_t SentencePiece::user_defined_prefix(std::string_view text) const {
  size_t longest = 0;
  if (!has_user_defined_) return longest;
  uint64_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto child = children_.find(node << 8 | static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    const int32_t id = ends_[node];
    if (id >= 0 && is(PieceType::kUserDefined, id)) longest = i + 1;
  }
  return longest;
}

SentencePiece::Step SentencePiece::normalize_step(std::string_view text) const {
  if (const size_t bytes = user_defined_prefix(text); bytes > 0)
    return {.out = text.substr(0, bytes), .bytes = bytes};
  if (const CharsMap::Match match = chars_map_.find(text); match.bytes > 0)
    return {.out = match.replacement, .bytes = match.bytes};
  const size_t bytes = utf8_character_bytes(text);
  if (bytes == 0) return {.out = kReplacementCharacter, .bytes = 1};
  return {.out = text.substr(0, bytes), .bytes = bytes};
}

// An incomplete text ends before the last space that follows something else and that is replaced as
// in the complete text.
SentencePiece::Normalized SentencePiece::normalize(std::string_view text, bool begins_text,
                                                   bool ends_text) const {
  const bool removes_spaces = file_.remove_extra_whitespaces;
  size_t at = 0;
  while (removes_spaces && begins_text && at < text.size()) {
    const Step step = normalize_step(text.substr(at));
    if (step.out != " ") break;
    at += step.bytes;
  }
  if (at == text.size()) return {.text = {}, .bytes = ends_text ? at : 0};
  std::string out;
  if (file_.add_dummy_prefix && begins_text && !file_.treat_whitespace_as_suffix) out += kSpace;
  bool follows_space = removes_spaces && begins_text;
  size_t end = 0, out_end = 0;  // of an incomplete text
  for (Step step; at < text.size(); at += step.bytes) {
    step = normalize_step(text.substr(at));
    std::string_view added = step.out;
    const bool begins_word = added.starts_with(' ') && !out.empty() && !out.ends_with(kSpace);
    if (begins_word && ends_at_spaces_ && text.size() - at >= lookahead_bytes_)
      end = at, out_end = out.size();
    while (follows_space && added.starts_with(' ')) added.remove_prefix(1);
    for (const char byte : added) byte == ' ' ? out += kSpace : out += byte;
    if (!added.empty()) follows_space = removes_spaces && added.ends_with(' ');
  }
  if (!ends_text) return {.text = out.substr(0, out_end), .bytes = end};
  while (removes_spaces && out.ends_with(kSpace)) out.resize(out.size() - kSpace.size());
  if (file_.add_dummy_prefix && file_.treat_whitespace_as_suffix) out += kSpace;
  return {.text = std::move(out), .bytes = text.size()};
}

// ---- Pieces

Result<SentencePiece> SentencePiece::create(SentencePieceFile file) {
  SentencePiece model;
  STOKER_ASSIGN_OR_RETURN(model.chars_map_, CharsMap::parse(file.precompiled_charsmap));
  file.precompiled_charsmap = {};
  model.file_ = std::move(file);
  STOKER_RETURN_IF_ERROR(model.add_pieces());
  return model;
}

Status SentencePiece::add_pieces() {
  min_score_ = std::numeric_limits<float>::max();
  max_score_ =
      std::numeric_limits<float>::min();  // SentencePiece's: scores below 0 do not raise it
  byte_ids_.fill(-1);
  lookahead_bytes_ = kMaxReplacedBytes;
  size_t total_bytes = 0;
  for (size_t i = 0; i < file_.pieces.size(); ++i) {
    const Piece& piece = file_.pieces[i];
    const auto id = static_cast<int32_t>(i);
    const std::string name = "pieces[" + std::to_string(i) + "]: ";
    switch (piece.type) {
      case PieceType::kUnknown:
        if (unknown_id_ >= 0) return invalid_model(name + "is a second piece of type UNKNOWN");
        unknown_id_ = id;
        continue;
      case PieceType::kControl:
        continue;
      case PieceType::kByte:
        if (byte_of(piece.text) < 0)
          return invalid_model(name + "is of type BYTE, but not <0x00> to <0xFF>");
        byte_ids_[static_cast<size_t>(byte_of(piece.text))] = id;
        continue;
      case PieceType::kNormal:
        min_score_ = std::min(min_score_, piece.score);
        max_score_ = std::max(max_score_, piece.score);
        break;
      case PieceType::kUserDefined:
        has_user_defined_ = true;
        lookahead_bytes_ = std::max(lookahead_bytes_, piece.text.size());
        break;
      case PieceType::kUnused:
        break;
    }
    total_bytes += piece.text.size();
    if (total_bytes > kMaxPieceBytesTotal)
      return invalid_model("pieces: have more than 16 MiB of text");
    if (!ids_.emplace(piece.text, id).second) return invalid_model(name + "occurs twice");
    if (crosses_space(piece.text)) ends_at_spaces_ = false;
    add_to_trie(piece.text, id);
  }
  if (unknown_id_ < 0) return invalid_model("pieces: none is of type UNKNOWN");
  if (file_.byte_fallback && std::ranges::count(byte_ids_, -1) > 0)
    return invalid_model(
        "pieces: not all bytes have one, though trainer_spec.byte_fallback is true");
  // Else a space could be part of a run of unknown characters.
  if (!ids_.contains(kSpace) || file_.treat_whitespace_as_suffix) ends_at_spaces_ = false;
  return {};
}

void SentencePiece::add_to_trie(std::string_view text, int32_t id) {
  uint64_t node = 0;
  for (const char byte : text) {
    const auto next = static_cast<uint32_t>(ends_.size());
    const auto [child, is_new] =
        children_.emplace(node << 8 | static_cast<unsigned char>(byte), next);
    if (is_new) ends_.push_back(-1);
    node = child->second;
  }
  ends_[node] = id;
}

std::vector<std::string> SentencePiece::token_texts() const {
  std::vector<std::string> texts;
  for (const Piece& piece : file_.pieces) {
    std::string& text = texts.emplace_back();
    switch (piece.type) {
      case PieceType::kControl:
        break;
      case PieceType::kUnknown:
        text = file_.unk_surface;
        break;
      case PieceType::kByte:
        text = static_cast<char>(byte_of(piece.text));
        break;
      case PieceType::kNormal:
      case PieceType::kUserDefined:
      case PieceType::kUnused:
        for (std::string_view rest = piece.text; !rest.empty();) {
          const bool is_space = rest.starts_with(kSpace);
          text += is_space ? ' ' : rest.front();
          rest.remove_prefix(is_space ? kSpace.size() : 1);
        }
        break;
    }
  }
  return texts;
}

// ---- Unigram

// The most likely pieces, by Viterbi's algorithm; of equal sums, that of the longest last piece.
std::vector<SentencePiece::Found> SentencePiece::find_unigrams(std::string_view text) const {
  struct Best {
    double score = 0;  // of the path that ends here
    int32_t id = -1;
    size_t begin = std::string_view::npos;  // of its last piece
  };
  std::vector<Best> best(text.size() + 1);
  const float unknown_score = min_score_ - kUnknownPenalty;
  const auto update = [&best](size_t begin, size_t end, double score, int32_t id) {
    Best& target = best[end];
    if (target.begin != std::string_view::npos && score <= target.score) return;
    target = {.score = score, .id = id, .begin = begin};
  };
  for (size_t begin = 0; begin < text.size();) {
    const double before = best[begin].score;
    const size_t character = character_bytes(text.substr(begin));
    bool has_character = false;
    uint64_t node = 0;
    for (size_t end = begin + 1; end <= text.size(); ++end) {
      const auto child = children_.find(node << 8 | static_cast<unsigned char>(text[end - 1]));
      if (child == children_.end()) break;
      node = child->second;
      const int32_t id = ends_[node];
      if (id < 0 || is(PieceType::kUnused, id)) continue;
      const size_t length = end - begin;
      // A user-defined piece is always preferred.
      const double score =
          is(PieceType::kUserDefined, id)
              ? static_cast<double>(static_cast<float>(length) * max_score_) - kUserDefinedPenalty
              : static_cast<double>(file_.pieces[static_cast<size_t>(id)].score);
      update(begin, end, score + before, id);
      has_character |= length == character;
    }
    if (!has_character)
      update(begin, begin + character, static_cast<double>(unknown_score) + before, unknown_id_);
    begin += character;
  }
  std::vector<Found> found;
  for (size_t end = text.size(); end > 0; end = best[end].begin)
    found.push_back({text.substr(best[end].begin, end - best[end].begin), best[end].id});
  std::ranges::reverse(found);
  return found;
}

// ---- BPE

// Merges the pair of the best score first and, of equal ones, the leftmost.
std::vector<SentencePiece::Found> SentencePiece::merge_pairs(std::string_view text) const {
  constexpr size_t kNone = std::string_view::npos;
  struct Symbol {
    std::string_view text;  // empty: merged into the one before it
    size_t previous = kNone, next = kNone;
    bool is_fixed = false;  // user-defined
  };
  struct Pair {
    float score = 0;
    size_t left = 0, right = 0;
    size_t bytes = 0;
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t fixed = user_defined_prefix(rest);
    const size_t bytes = fixed > 0 ? fixed : character_bytes(rest);
    const size_t index = symbols.size();
    symbols.push_back({.text = rest.substr(0, bytes),
                       .previous = index == 0 ? kNone : index - 1,
                       .next = bytes == rest.size() ? kNone : index + 1,
                       .is_fixed = fixed > 0});
    rest.remove_prefix(bytes);
  }
  std::priority_queue<Pair> pairs;
  // Pieces of type UNUSED take part in merges and are then split again as they were merged.
  boost::unordered_flat_map<std::string_view, size_t> left_bytes;
  const auto joined = [&](const Symbol& left, const Symbol& right) {
    return std::string_view(left.text.data(), left.text.size() + right.text.size());
  };
  const auto add_pair = [&](size_t left, size_t right) {
    if (left == kNone || right == kNone || symbols[left].is_fixed || symbols[right].is_fixed)
      return;
    const std::string_view piece = joined(symbols[left], symbols[right]);
    const auto id = ids_.find(piece);
    if (id == ids_.end()) return;
    pairs.push({.score = file_.pieces[static_cast<size_t>(id->second)].score,
                .left = left,
                .right = right,
                .bytes = piece.size()});
    if (is(PieceType::kUnused, id->second)) left_bytes[piece] = symbols[left].text.size();
  };
  for (size_t i = 1; i < symbols.size(); ++i) add_pair(i - 1, i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    Symbol &left = symbols[pair.left], &right = symbols[pair.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != pair.bytes)
      continue;  // changed since
    left.text = joined(left, right);
    left.next = right.next;
    right.text = {};
    if (left.next != kNone) symbols[left.next].previous = pair.left;
    add_pair(left.previous, pair.left);
    add_pair(pair.left, left.next);
  }
  std::vector<Found> found;
  std::vector<std::string_view> pending;
  for (size_t at = symbols.empty() ? kNone : 0; at != kNone; at = symbols[at].next) {
    pending.push_back(symbols[at].text);
    while (!pending.empty()) {
      const std::string_view piece = pending.back();
      pending.pop_back();
      const auto id = ids_.find(piece);
      const auto split = left_bytes.find(piece);
      if (id != ids_.end() && is(PieceType::kUnused, id->second) && split != left_bytes.end()) {
        pending.push_back(piece.substr(split->second));
        pending.push_back(piece.substr(0, split->second));
      } else {
        found.push_back({piece, id == ids_.end() ? unknown_id_ : id->second});
      }
    }
  }
  return found;
}

size_t SentencePiece::encode(std::string_view text, bool begins_text, bool ends_text,
                             std::vector<int32_t>& ids) const {
  const Normalized normalized = normalize(text, begins_text, ends_text);
  bool follows_unknown = false;
  for (const Found& piece : file_.algorithm == PieceAlgorithm::kUnigram
                                ? find_unigrams(normalized.text)
                                : merge_pairs(normalized.text)) {
    const bool is_unknown = piece.id == unknown_id_;
    if (is_unknown && file_.byte_fallback) {
      for (const char byte : piece.text) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (!is_unknown || !follows_unknown) {  // unknown pieces in a row are one token
      ids.push_back(piece.id);
    }
    follows_unknown = is_unknown;
  }
  return normalized.bytes;
}

}  // namespace stoker::tokenizer
