// parse_tiktoken: a token in Base64, a space and its rank in each line. Neither the pattern that
// splits text nor the added tokens are in the file; the number of ranks tells which they are.
#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "shared/base/utf8.h"
#include "shared/tokenizer/tokenizer_model.h"

namespace stoker::tokenizer {
namespace {

struct KnownToken {
  std::string_view content;
  int32_t id;
};
struct KnownEncoding {
  std::string_view name;
  size_t num_ranks;
  std::string_view pattern;
  std::vector<KnownToken> tokens;
};

constexpr size_t kMaxRanks = size_t{1} << 18;  // above that of every known encoding

// Without the possessive quantifiers of tiktoken, which only save time.
constexpr std::string_view kR50kPattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCl100kPattern =
    R"((?i:'(?:[sdmt]|ll|ve|re))|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<KnownEncoding>& known_encodings() {
  static const std::vector<KnownEncoding> kEncodings{
      {"r50k_base", 50256, kR50kPattern, {{"<|endoftext|>", 50256}}},
      {"p50k_base", 50280, kR50kPattern, {{"<|endoftext|>", 50256}}},
      {"cl100k_base",
       100256,
       kCl100kPattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k_base",
       199998,
       kO200kPattern,
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}}};
  return kEncodings;
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// nullopt: not Base64 with padding.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes += static_cast<char>(bits >> num_bits & 0xff);
  }
  return bytes;
}

Status bad_line(size_t line, const std::string& what) {
  return Status(StatusCode::kCorrupt, "line " + std::to_string(line) + ": " + what);
}

// The tokens by rank; ranks can have gaps, as those of p50k_base have.
Status read_ranks(std::string_view file, TokenIds& ranks, std::vector<std::string>& tokens) {
  size_t number = 0;
  while (!file.empty()) {
    ++number;
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    auto token = decode_base64(line.substr(0, std::min(space, line.size())));
    if (space == std::string_view::npos || !token)
      return bad_line(number, "must be a token in Base64, a space and its rank");
    if (token->size() > kMaxTokenBytes)
      return bad_line(number, "the token has " + std::to_string(token->size()) +
                                  " bytes, more than " + std::to_string(kMaxTokenBytes));
    size_t rank = 0;
    const char* const last = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + space + 1, last, rank);
    if (parsed.ec != std::errc() || parsed.ptr != last || rank >= kMaxRanks)
      return bad_line(number, "the rank must be a number below " + std::to_string(kMaxRanks));
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) return bad_line(number, "repeats rank " + std::to_string(rank));
    if (!ranks.emplace(*token, static_cast<int32_t>(rank)).second)
      return bad_line(number, "repeats the token of another rank");
    tokens[rank] = *std::move(token);
  }
  return {};
}

}  // namespace

Result<TokenizerModel> parse_tiktoken(std::string_view file) {
  TokenizerModel model;
  TokenIds ranks;
  STOKER_RETURN_IF_ERROR(read_ranks(file, ranks, model.tokens));
  const auto known = std::ranges::find(known_encodings(), ranks.size(), &KnownEncoding::num_ranks);
  if (known == known_encodings().end())
    return Status(StatusCode::kMismatch,
                  "has " + std::to_string(ranks.size()) +
                      " ranks, which is not r50k_base, p50k_base, cl100k_base or o200k_base, and "
                      "a .tiktoken file does not say how text is split; convert it to a "
                      "tokenizer.json");
  STOKER_ASSIGN_OR_RETURN(SplitPattern pattern, SplitPattern::compile(known->pattern));
  model.splits.push_back({.pattern = std::move(pattern)});
  for (int byte = 0; byte < 256; ++byte) {
    const auto rank = ranks.find(std::string(1, static_cast<char>(byte)));
    if (rank == ranks.end())
      return Status(StatusCode::kCorrupt, "has no token for byte " + std::to_string(byte));
    model.bytes.set_byte(static_cast<unsigned char>(byte), rank->second);
  }
  // tiktoken merges any two neighbors that are a token together, the lowest rank first.
  for (const auto& [token, rank] : ranks) {
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks.find(std::string_view(token).substr(0, at));
      const auto right = ranks.find(std::string_view(token).substr(at));
      if (left != ranks.end() && right != ranks.end())
        model.bytes.add_merge(left->second, right->second, static_cast<uint32_t>(rank), rank);
    }
  }
  for (const KnownToken& token : known->tokens) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= model.tokens.size()) model.tokens.resize(id + 1);
    if (!model.tokens[id].empty())
      return Status(StatusCode::kCorrupt, "rank " + std::to_string(id) + " is that of " +
                                              std::string(token.content) + " in " +
                                              std::string(known->name));
    model.tokens[id] = token.content;
    if (token.content == kEndTokens.front()) model.end_token = token.id;
  }
  model.bytes.set_whole_pieces(std::move(ranks));
  return model;
}

}  // namespace stoker::tokenizer
