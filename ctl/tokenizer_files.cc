#include "ctl/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::ctl {
namespace {

constexpr const char* kTokenizerJson = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
// What transformers reads in addition, if it is there.
constexpr std::array kOptionalFiles{kTokenizerConfig, "special_tokens_map.json",
                                    "chat_template.jinja"};
constexpr uint64_t kMaxOptionalBytes = uint64_t{16} << 20;

// The names of BERT's special tokens.
constexpr std::array<std::pair<const char*, const char*>, 5> kSpecialTokens{
    {{"unk_token", "[UNK]"},
     {"cls_token", "[CLS]"},
     {"sep_token", "[SEP]"},
     {"pad_token", "[PAD]"},
     {"mask_token", "[MASK]"}}};

// Whether the tokenizer.json, which was parsed before, adds this token to its vocabulary.
bool adds_token(const boost::json::value& file, std::string_view content) {
  const boost::json::value* const added = file.as_object().if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return false;
  return std::ranges::any_of(added->get_array(), [&](const boost::json::value& entry) {
    const boost::json::value* const found = entry.as_object().if_contains("content");
    return found != nullptr && found->is_string() && found->get_string() == content;
  });
}

std::string make_tokenizer_config(const tokenizer::Tokenizer& tokenizer,
                                  const boost::json::value& file, int64_t context_length) {
  boost::json::object config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                             {"model_max_length", context_length},
                             {"clean_up_tokenization_spaces", false}};
  if (const auto end = tokenizer.end_token()) config["eos_token"] = tokenizer.bytes_of(*end);
  for (const auto& [name, token] : kSpecialTokens)
    if (adds_token(file, token)) config[name] = token;
  return boost::json::serialize(config) + "\n";
}

}  // namespace

Result<TokenizerFiles> read_tokenizer_files(const std::string& path, const std::string& digest,
                                            int64_t context_length) {
  STOKER_ASSIGN_OR_RETURN(std::string file, read_file(path, tokenizer::kMaxFileBytes));
  STOKER_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::parse(file, path));
  if (tokenizer->digest() != digest)
    return Status(StatusCode::kMismatch, path + ": was changed since the checkpoint was saved");
  if (!tokenizer::is_tokenizer_json(file))
    return Status(StatusCode::kMismatch, path + ": is no tokenizer.json, which transformers needs");
  boost::system::error_code error;
  const boost::json::value json = parse_json(file, error);
  if (error || !json.is_object()) return Status(StatusCode::kCorrupt, path + ": not a JSON object");
  TokenizerFiles result{.files = {{kTokenizerJson, std::move(file)}},
                        .end_token = tokenizer->end_token()};
  const std::string folder = std::filesystem::path(path).parent_path();
  bool has_config = false;
  for (const char* const name : kOptionalFiles) {
    auto content = read_file(join_path(folder.empty() ? "." : folder, name), kMaxOptionalBytes);
    if (content.status().code() == StatusCode::kNotFound) continue;
    if (!content.ok()) return content.status();
    has_config |= std::string_view(name) == kTokenizerConfig;
    result.files.emplace_back(name, *std::move(content));
  }
  if (!has_config)
    result.files.emplace_back(kTokenizerConfig,
                              make_tokenizer_config(*tokenizer, json, context_length));
  return result;
}

}  // namespace stoker::ctl
