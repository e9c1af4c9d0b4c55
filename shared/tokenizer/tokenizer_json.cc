// parse_tokenizer_json: tokenizer.json of Hugging Face's tokenizers, version 1.0. Its truncation and padding
// are settings of a batch, and here those of the dataset; transformers ignores them, too.
#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/tokenizer/tokenizer_model.h"

namespace stoker::tokenizer {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxSplits = 16;
constexpr size_t kMaxTemplateTokens = 64;
// That of ByteLevel with use_regex.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Status wrong(const std::string& field, const std::string& what) {
  return Status(StatusCode::kCorrupt, field + ": " + what);
}
Status unsupported(const std::string& field, std::string_view value, std::string_view accepted) {
  return Status(StatusCode::kMismatch, field + ": " + quote_for_message(value) +
                                           " is not supported; accepted: " + std::string(accepted));
}

// The byte-level alphabet of GPT-2, in which vocabularies are written: a character for each byte.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_shown = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
      add(is_shown ? byte : next++, static_cast<char>(byte));
    }
  }

  // The bytes of a token; nullopt: it has other characters.
  std::optional<std::string> bytes_of(std::string_view token) const {
    std::string bytes;
    while (!token.empty()) {
      const size_t size = utf8_character_bytes(token);
      const auto byte = size == 0 ? bytes_.end() : bytes_.find(token.substr(0, size));
      if (byte == bytes_.end()) return std::nullopt;
      bytes += static_cast<char>(byte->second);
      token.remove_prefix(size);
    }
    return bytes;
  }

 private:
  void add(uint32_t code, char byte) {
    std::string character;
    if (code < 0x80) {
      character = static_cast<char>(code);
    } else {
      character += static_cast<char>(0xc0 | code >> 6);
      character += static_cast<char>(0x80 | (code & 0x3f));
    }
    bytes_.emplace(std::move(character), byte);
  }

  TokenIds bytes_;
};

class JsonReader {
 public:
  explicit JsonReader(const json::object& root) : root_(root) {}

  Result<TokenizerModel> read() {
    STOKER_ASSIGN_OR_RETURN(const json::object* const model, object_in(root_, "model", "model"));
    if (text_in(*model, "type") == "WordPiece") return read_word_piece(*model);
    STOKER_RETURN_IF_ERROR(read_normalizer());
    STOKER_RETURN_IF_ERROR(read_pre_tokenizer());
    STOKER_RETURN_IF_ERROR(read_decoder());
    STOKER_RETURN_IF_ERROR(check_model(*model));
    STOKER_RETURN_IF_ERROR(read_vocabulary(*model));
    STOKER_RETURN_IF_ERROR(read_added_tokens());
    STOKER_RETURN_IF_ERROR(check_ids());
    STOKER_RETURN_IF_ERROR(read_bytes());
    STOKER_RETURN_IF_ERROR(read_merges(*model));
    if (bool_in(*model, "ignore_merges", false))
      model_.bytes.set_whole_pieces(std::move(by_bytes_));
    return std::move(model_);
  }

 private:
  // ---- Values

  static const json::value* find(const json::object& object, std::string_view key) {
    const json::value* const value = object.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  static Result<const json::object*> object_in(const json::object& object, std::string_view key,
                                               const std::string& field) {
    const json::value* const value = find(object, key);
    if (value == nullptr || !value->is_object()) return wrong(field, "must be an object");
    return &value->get_object();
  }
  static std::string text_in(const json::object& object, std::string_view key) {
    const json::value* const value = find(object, key);
    return value == nullptr || !value->is_string() ? std::string()
                                                   : std::string(value->get_string());
  }
  static bool bool_in(const json::object& object, std::string_view key, bool if_missing) {
    const json::value* const value = find(object, key);
    return value == nullptr || !value->is_bool() ? if_missing : value->get_bool();
  }
  // Rejects a value that changes the ids.
  static Status check_value(const json::object& object, const std::string& parent,
                            std::string_view key, const json::value& accepted) {
    const json::value* const value = find(object, key);
    if (value == nullptr || *value == accepted) return {};
    return unsupported(parent + '.' + std::string(key), json::serialize(*value),
                       "null, " + json::serialize(accepted));
  }
  // An id below the number of tokens in the file.
  Result<int32_t> id_of(const json::value& value, const std::string& field) const {
    if (!value.is_int64() || value.get_int64() < 0 ||
        value.get_int64() >= static_cast<int64_t>(max_tokens_))
      return wrong(field, "must have an id from 0 to " + std::to_string(max_tokens_ - 1) +
                              ", got " + quote_for_message(json::serialize(value)));
    return static_cast<int32_t>(value.get_int64());
  }

  // ---- Stages

  Status read_normalizer() {
    const json::value* const normalizer = find(root_, "normalizer");
    return normalizer == nullptr ? Status() : read_normalizer(*normalizer, "normalizer");
  }
  Status read_normalizer(const json::value& normalizer, const std::string& field) {
    if (!normalizer.is_object()) return wrong(field, "must be an object or null");
    const json::object& object = normalizer.get_object();
    const std::string type = text_in(object, "type");
    const json::value* const steps = find(object, "normalizers");
    if (type == "Sequence" && steps != nullptr && steps->is_array()) {
      for (size_t i = 0; i < steps->get_array().size(); ++i) {
        const json::value& step = steps->get_array()[i];
        const std::string at = field + ".normalizers[" + std::to_string(i) + ']';
        if (!step.is_object() || text_in(step.get_object(), "type") != "NFC")
          return unsupported(at + ".type",
                             step.is_object() ? text_in(step.get_object(), "type") : "", "NFC");
        model_.normalizes_nfc = true;
      }
      return {};
    }
    if (type != "NFC") return unsupported(field + ".type", type, "null, NFC, Sequence of NFC");
    model_.normalizes_nfc = true;
    return {};
  }

  Status read_pre_tokenizer() {
    const std::string field = "pre_tokenizer";
    STOKER_ASSIGN_OR_RETURN(const json::object* const object, object_in(root_, field, field));
    if (text_in(*object, "type") == "ByteLevel") return read_byte_level(*object, field, true);
    if (text_in(*object, "type") != "Sequence")
      return unsupported(field + ".type", text_in(*object, "type"), "ByteLevel, Sequence");
    const json::value* const steps = find(*object, "pretokenizers");
    if (steps == nullptr || !steps->is_array() || steps->get_array().empty() ||
        steps->get_array().size() > kMaxSplits)
      return wrong(field + ".pretokenizers",
                   "must be a list of 1 to " + std::to_string(kMaxSplits));
    for (size_t i = 0; i < steps->get_array().size(); ++i) {
      const std::string at = field + ".pretokenizers[" + std::to_string(i) + ']';
      const json::value& step = steps->get_array()[i];
      if (!step.is_object()) return wrong(at, "must be an object");
      const bool is_last = i + 1 == steps->get_array().size();
      STOKER_RETURN_IF_ERROR(read_step(step.get_object(), at, is_last, i == 0));
    }
    return {};
  }
  Status read_step(const json::object& step, const std::string& field, bool is_last,
                   bool is_first) {
    const std::string type = text_in(step, "type");
    if (is_last != (type == "ByteLevel"))
      return is_last ? unsupported(field + ".type", type, "ByteLevel as the last one")
                     : unsupported(field + ".type", type, "Split, Digits");
    if (is_last) return read_byte_level(step, field, is_first);
    if (type == "Digits")
      return add_split(bool_in(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", field);
    if (type != "Split") return unsupported(field + ".type", type, "Split, Digits, ByteLevel");
    return read_split(step, field);
  }
  Status read_byte_level(const json::object& step, const std::string& field, bool is_first) {
    model_.adds_prefix_space = bool_in(step, "add_prefix_space", true);
    if (model_.adds_prefix_space && !is_first)
      return unsupported(field + ".add_prefix_space", "true", "false after another step");
    return bool_in(step, "use_regex", true) ? add_split(kByteLevelPattern, field) : Status();
  }
  Status read_split(const json::object& step, const std::string& field) {
    const std::string behavior = text_in(step, "behavior");
    const bool is_inverted = bool_in(step, "invert", false);
    const bool is_isolated = behavior == "Isolated";
    if (!is_isolated && !(behavior == "Removed" && is_inverted))
      return unsupported(field + ".behavior", behavior, "Isolated, or Removed with invert: true");
    STOKER_ASSIGN_OR_RETURN(const json::object* const pattern,
                            object_in(step, "pattern", field + ".pattern"));
    const json::value* const literal = find(*pattern, "String");
    if (literal == nullptr)
      return add_split(text_in(*pattern, "Regex"), field + ".pattern.Regex", is_isolated);
    if (!literal->is_string()) return wrong(field + ".pattern.String", "must be a text");
    return add_split(SplitPattern::literal(std::string_view(literal->get_string())),
                     field + ".pattern.String", is_isolated);
  }
  Status add_split(std::string_view pattern, const std::string& field, bool keeps_rest = true) {
    return add_split(SplitPattern::compile(pattern), field, keeps_rest);
  }
  Status add_split(Result<SplitPattern> pattern, const std::string& field, bool keeps_rest) {
    if (!pattern) return pattern.status().with_context(field);
    model_.splits.push_back({.pattern = *std::move(pattern), .keeps_rest = keeps_rest});
    return {};
  }

  Status read_decoder() const {
    const json::value* const decoder = find(root_, "decoder");
    if (decoder == nullptr) return {};
    const std::string type =
        decoder->is_object() ? text_in(decoder->get_object(), "type") : std::string();
    return type == "ByteLevel" ? Status() : unsupported("decoder.type", type, "null, ByteLevel");
  }

  static Status check_model(const json::object& model) {
    const std::string type = text_in(model, "type");
    if (!type.empty() && type != "BPE") return unsupported("model.type", type, "BPE, WordPiece");
    STOKER_RETURN_IF_ERROR(check_value(model, "model", "dropout", 0.0));
    STOKER_RETURN_IF_ERROR(check_value(model, "model", "continuing_subword_prefix", ""));
    STOKER_RETURN_IF_ERROR(check_value(model, "model", "end_of_word_suffix", ""));
    return check_value(model, "model", "byte_fallback", false);
  }

  // ---- WordPiece

  Result<TokenizerModel> read_word_piece(const json::object& model) {
    STOKER_ASSIGN_OR_RETURN(WordPieceSettings settings, read_bert_normalizer());
    STOKER_RETURN_IF_ERROR(check_bert_steps());
    STOKER_RETURN_IF_ERROR(read_vocabulary(model));
    // encode() looks for each start of a word of at most the longest.
    for (const auto& [token, id] : ids_)
      if (token.size() > kMaxTokenBytes)
        return wrong("model.vocab", "token " + std::to_string(id) + " has " +
                                        std::to_string(token.size()) + " bytes, more than " +
                                        std::to_string(kMaxTokenBytes));
    STOKER_RETURN_IF_ERROR(read_word_settings(model, settings));
    model_.maybe_word_piece.emplace(std::move(settings), ids_);
    STOKER_RETURN_IF_ERROR(read_added_tokens());
    STOKER_RETURN_IF_ERROR(check_ids());
    for (const auto& written : written_)
      model_.tokens.push_back(model_.maybe_word_piece->text_of(*written));
    STOKER_RETURN_IF_ERROR(read_template());
    STOKER_RETURN_IF_ERROR(check_template());
    return std::move(model_);
  }

  Result<WordPieceSettings> read_bert_normalizer() const {
    STOKER_ASSIGN_OR_RETURN(const json::object* const normalizer,
                            object_in(root_, "normalizer", "normalizer"));
    if (text_in(*normalizer, "type") != "BertNormalizer")
      return unsupported("normalizer.type", text_in(*normalizer, "type"), "BertNormalizer");
    WordPieceSettings settings;
    settings.clean_text = bool_in(*normalizer, "clean_text", true);
    settings.handle_chinese_chars = bool_in(*normalizer, "handle_chinese_chars", true);
    settings.lowercase = bool_in(*normalizer, "lowercase", true);
    settings.strip_accents = bool_in(*normalizer, "strip_accents", settings.lowercase);
    return settings;
  }

  Status check_bert_steps() const {
    STOKER_ASSIGN_OR_RETURN(const json::object* const splits,
                            object_in(root_, "pre_tokenizer", "pre_tokenizer"));
    if (text_in(*splits, "type") != "BertPreTokenizer")
      return unsupported("pre_tokenizer.type", text_in(*splits, "type"), "BertPreTokenizer");
    const json::value* const added = find(root_, "added_tokens");
    if (added == nullptr || !added->is_array()) return {};
    // A part of a text ends at a space.
    for (const json::value& entry : added->get_array())
      if (entry.is_object() && WordPiece::has_space(text_in(entry.get_object(), "content")))
        return wrong("added_tokens", quote_for_message(text_in(entry.get_object(), "content")) +
                                         " has a space, which is not supported with WordPiece");
    return {};
  }

  Status read_word_settings(const json::object& model, WordPieceSettings& settings) const {
    if (find(model, "continuing_subword_prefix") != nullptr)
      settings.continuing_subword_prefix = text_in(model, "continuing_subword_prefix");
    if (const json::value* const longest = find(model, "max_input_chars_per_word")) {
      if (!longest->is_int64() || longest->get_int64() < 1 ||
          longest->get_int64() > static_cast<int64_t>(kMaxTokenBytes))
        return wrong("model.max_input_chars_per_word",
                     "must be from 1 to " + std::to_string(kMaxTokenBytes));
      settings.max_input_chars_per_word = static_cast<size_t>(longest->get_int64());
    }
    const auto unknown = ids_.find(text_in(model, "unk_token"));
    if (unknown == ids_.end())
      return wrong("model.unk_token",
                   quote_for_message(text_in(model, "unk_token")) + " is not in model.vocab");
    settings.unknown_token = unknown->second;
    return {};
  }

  Status read_template() {
    const json::value* const value = find(root_, "post_processor");
    if (value == nullptr) return {};
    if (!value->is_object()) return wrong("post_processor", "must be an object or null");
    const json::object& processor = value->get_object();
    const std::string type = text_in(processor, "type");
    if (type == "BertProcessing") {
      STOKER_RETURN_IF_ERROR(add_pair(processor, "cls", model_.text_template.before));
      return add_pair(processor, "sep", model_.text_template.after);
    }
    if (type != "TemplateProcessing")
      return unsupported("post_processor.type", type, "TemplateProcessing, BertProcessing");
    return read_single(processor);
  }
  Status check_template() const {
    for (const auto* const ids : {&model_.text_template.before, &model_.text_template.after})
      for (const int32_t id : *ids)
        if (static_cast<size_t>(id) >= model_.tokens.size())
          return wrong("post_processor", "has the id " + std::to_string(id) +
                                             ", but the largest of a token is " +
                                             std::to_string(model_.tokens.size() - 1));
    return {};
  }
  // ["[CLS]", 101]
  Status add_pair(const json::object& processor, std::string_view key,
                  std::vector<int32_t>& ids) const {
    const std::string field = "post_processor." + std::string(key);
    const json::value* const pair = find(processor, key);
    if (pair == nullptr || !pair->is_array() || pair->get_array().size() != 2)
      return wrong(field, "must be a token and its id");
    STOKER_ASSIGN_OR_RETURN(const int32_t id, id_of(pair->get_array()[1], field));
    ids.push_back(id);
    return {};
  }
  Status read_single(const json::object& processor) {
    const std::string field = "post_processor.single";
    const json::value* const steps = find(processor, "single");
    STOKER_ASSIGN_OR_RETURN(
        const json::object* const special,
        object_in(processor, "special_tokens", "post_processor.special_tokens"));
    if (steps == nullptr || !steps->is_array()) return wrong(field, "must be a list");
    std::vector<int32_t>* ids = &model_.text_template.before;
    for (const json::value& step : steps->get_array()) {
      if (!step.is_object()) return wrong(field, "must be a list of objects");
      if (find(step.get_object(), "Sequence") != nullptr) {
        if (ids == &model_.text_template.after) return wrong(field, "has the text twice");
        ids = &model_.text_template.after;
        continue;
      }
      STOKER_RETURN_IF_ERROR(add_special(step.get_object(), *special, field, *ids));
    }
    if (model_.text_template.size() > kMaxTemplateTokens)
      return wrong(field, "adds more than " + std::to_string(kMaxTemplateTokens) + " tokens");
    return ids == &model_.text_template.after ? Status() : wrong(field, "lacks the text, Sequence");
  }
  Status add_special(const json::object& step, const json::object& special,
                     const std::string& field, std::vector<int32_t>& added) const {
    STOKER_ASSIGN_OR_RETURN(const json::object* const token,
                            object_in(step, "SpecialToken", field + ".SpecialToken"));
    const std::string name = text_in(*token, "id");
    STOKER_ASSIGN_OR_RETURN(
        const json::object* const entry,
        object_in(special, name, "post_processor.special_tokens." + quote_for_message(name)));
    const json::value* const ids = find(*entry, "ids");
    if (ids == nullptr || !ids->is_array()) return wrong(field, "needs the ids of its tokens");
    for (const json::value& value : ids->get_array()) {
      STOKER_ASSIGN_OR_RETURN(const int32_t id, id_of(value, field));
      added.push_back(id);
    }
    return {};
  }

  // ---- Tokens

  Status add_id(int32_t id, const std::string& token, const std::string& field) {
    if (static_cast<size_t>(id) >= written_.size()) written_.resize(static_cast<size_t>(id) + 1);
    std::optional<std::string>& written = written_[static_cast<size_t>(id)];
    if (written && *written != token)
      return wrong(field,
                   "has the id " + std::to_string(id) + " of " + quote_for_message(*written));
    written = token;
    return {};
  }

  Status read_vocabulary(const json::object& model) {
    STOKER_ASSIGN_OR_RETURN(const json::object* const vocabulary,
                            object_in(model, "vocab", "model.vocab"));
    const json::value* const added = find(root_, "added_tokens");
    max_tokens_ = vocabulary->size() +
                  (added != nullptr && added->is_array() ? added->get_array().size() : 0);
    if (max_tokens_ == 0 || max_tokens_ > kMaxTokens)
      return wrong("model.vocab", "must have from 1 to " + std::to_string(kMaxTokens) + " tokens");
    for (const auto& [token, value] : *vocabulary) {
      const std::string field = "model.vocab: " + quote_for_message(token);
      STOKER_ASSIGN_OR_RETURN(const int32_t id, id_of(value, field));
      STOKER_RETURN_IF_ERROR(add_id(id, std::string(token), field));
      ids_.emplace(std::string(token), id);
    }
    return {};
  }

  Status read_added_tokens() {
    const json::value* const list = find(root_, "added_tokens");
    if (list == nullptr) return {};
    if (!list->is_array()) return wrong("added_tokens", "must be a list");
    TokenIds added;
    for (size_t i = 0; i < list->get_array().size(); ++i) {
      const std::string field = "added_tokens[" + std::to_string(i) + ']';
      const json::value& entry = list->get_array()[i];
      if (!entry.is_object()) return wrong(field, "must be an object");
      STOKER_RETURN_IF_ERROR(read_added_token(entry.get_object(), field, added));
    }
    for (const std::string_view name : kEndTokens) {
      const auto found = added.find(name);
      if (found == added.end()) continue;
      model_.end_token = found->second;
      break;
    }
    return {};
  }
  Status read_added_token(const json::object& entry, const std::string& field, TokenIds& added) {
    for (const std::string_view key : {"single_word", "lstrip", "rstrip"})
      STOKER_RETURN_IF_ERROR(check_value(entry, field, key, false));
    const std::string content = text_in(entry, "content");
    if (content.empty()) return wrong(field + ".content", "must be a text that is not empty");
    if (content.size() > kMaxTokenBytes)
      return wrong(field + ".content", "has " + std::to_string(content.size()) +
                                           " bytes, more than the " +
                                           std::to_string(kMaxTokenBytes) + " of a token");
    const json::value* const value = find(entry, "id");
    if (value == nullptr) return wrong(field + ".id", "is missing");
    STOKER_ASSIGN_OR_RETURN(const int32_t id, id_of(*value, field + ".id"));
    const auto known = ids_.find(content);
    if (known != ids_.end() && known->second != id)
      return wrong(field + ".id", "is " + std::to_string(id) + ", but " +
                                      std::to_string(known->second) + " in model.vocab");
    STOKER_RETURN_IF_ERROR(add_id(id, content, field));
    if (!added.emplace(content, id).second) return wrong(field, "repeats another entry");
    if (bool_in(entry, "normalized", true)) {
      std::string normalized = content;
      if (model_.maybe_word_piece) {
        normalized = model_.maybe_word_piece->normalize(content);
        if (normalized.empty()) return wrong(field + ".content", "is empty once normalized");
      } else if (model_.normalizes_nfc) {
        STOKER_ASSIGN_OR_RETURN(MappedText normal, normalize_nfc(content));
        normalized = std::move(normal.text);
      }
      model_.normalized_tokens.add(std::move(normalized), id);
    } else {
      model_.raw_tokens.add(content, id);
    }
    return {};
  }

  Status check_ids() const {
    const auto missing =
        std::ranges::find_if(written_, [](const auto& written) { return !written.has_value(); });
    if (missing == written_.end()) return {};
    return wrong("model.vocab", "has no token with the id " +
                                    std::to_string(missing - written_.begin()) +
                                    ", below the largest, " + std::to_string(written_.size() - 1));
  }

  // What tokens decode to, and the tokens of single bytes.
  Status read_bytes() {
    const ByteAlphabet alphabet;
    for (const auto& written : written_) {
      auto bytes = alphabet.bytes_of(*written);
      const auto id = static_cast<int32_t>(model_.tokens.size());
      // Others are added tokens, or never made.
      if (bytes && ids_.contains(*written)) by_bytes_.emplace(*bytes, id);
      model_.tokens.push_back(bytes ? *std::move(bytes) : *written);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const auto id = by_bytes_.find(std::string(1, static_cast<char>(byte)));
      if (id == by_bytes_.end())
        return wrong("model.vocab", "has no token for byte " + std::to_string(byte) +
                                        "; train it with initial_alphabet: "
                                        "ByteLevel.alphabet()");
      model_.bytes.set_byte(static_cast<unsigned char>(byte), id->second);
    }
    return {};
  }

  Status read_merges(const json::object& model) {
    const json::value* const merges = find(model, "merges");
    if (merges == nullptr || !merges->is_array()) return wrong("model.merges", "must be a list");
    for (size_t i = 0; i < merges->get_array().size(); ++i) {
      const std::string field = "model.merges[" + std::to_string(i) + ']';
      std::string left, right;
      if (!read_pair(merges->get_array()[i], left, right))
        return wrong(field, "must be two tokens");
      const auto left_id = ids_.find(left), right_id = ids_.find(right);
      const auto result = ids_.find(left + right);
      for (const auto& [token, id] :
           {std::pair(left, left_id), std::pair(right, right_id), std::pair(left + right, result)})
        if (id == ids_.end())
          return wrong(field, quote_for_message(token) + " is not in model.vocab");
      if (!model_.bytes.add_merge(left_id->second, right_id->second, static_cast<uint32_t>(i),
                                  result->second))
        return wrong(field, "repeats an earlier one");
    }
    return {};
  }
  static bool read_pair(const json::value& merge, std::string& left, std::string& right) {
    if (const json::array* const pair = merge.if_array()) {
      if (pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string()) return false;
      left = (*pair)[0].get_string();
      right = (*pair)[1].get_string();
    } else if (const json::string* const text = merge.if_string()) {
      const std::string_view both(*text);
      const size_t space = both.find(' ');
      if (space == std::string_view::npos) return false;
      left = both.substr(0, space);
      right = both.substr(space + 1);
    }
    return !left.empty() && !right.empty();
  }

  const json::object& root_;
  size_t max_tokens_ = 0;
  TokenizerModel model_;
  std::vector<std::optional<std::string>> written_;  // by id, as in the file
  TokenIds ids_;                                     // of model.vocab, as in the file
  TokenIds by_bytes_;
};

}  // namespace

Result<TokenizerModel> parse_tokenizer_json(std::string_view file) {
  boost::system::error_code error;
  const json::value root = parse_json(file, error, kMaxDepth);
  if (error) return Status(StatusCode::kCorrupt, "is not JSON: " + error.message());
  if (!root.is_object() || !root.get_object().contains("model"))
    return Status(StatusCode::kCorrupt,
                  "is JSON without a model, and no tokenizer.json of Hugging Face");
  return JsonReader(root.get_object()).read();
}

}  // namespace stoker::tokenizer
