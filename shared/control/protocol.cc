#include "shared/control/protocol.h"

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <boost/json/basic_parser_impl.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/control/grammar.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

ProtocolError protocol_error(const std::string& id, ErrorCode code, std::string message) {
  return ProtocolError{id, code, Status(StatusCode::kInvalidArgument, std::move(message))};
}

// A Request if `call` is valid, otherwise a ProtocolError with its status.
std::variant<Request, ProtocolError> request_of(std::string id, Result<Call> call) {
  if (call.ok()) return Request{std::move(id), *std::move(call)};
  const bool is_unknown = call.status().code() == StatusCode::kNotFound;
  return protocol_error(id, is_unknown ? ErrorCode::kUnknownMethod : ErrorCode::kInvalidParams,
                        call.status().message());
}

// ---- Plain-text requests

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  size_t at = 0;
  while (at < line.size()) {
    const size_t begin = line.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

bool is_printable_ascii(std::string_view line) {
  for (const char c : line) {
    if ((c < 0x20 || c >= 0x7f) && c != '\t') return false;
  }
  return true;
}

std::variant<Request, ProtocolError> parse_words(std::string_view line) {
  const std::string id = "null";
  if (!is_printable_ascii(line)) {
    return protocol_error(id, ErrorCode::kParseError,
                          "the line is neither a JSON object nor plain text; try: help");
  }
  const auto words = split_words(line);
  if (words.empty())
    return protocol_error(id, ErrorCode::kInvalidRequest, "the line is empty; try: help");
  return request_of(id, parse_call(words[0], std::span(words).subspan(1)));
}

// ---- JSON

// Handler for Boost.JSON's parser. Only objects and their keys matter.
struct KeyCollector {
  using Error = boost::system::error_code;
  // NOLINTBEGIN(readability-identifier-naming): names required by the parser
  constexpr static size_t max_object_size = static_cast<size_t>(-1);
  constexpr static size_t max_array_size = static_cast<size_t>(-1);
  constexpr static size_t max_key_size = static_cast<size_t>(-1);
  constexpr static size_t max_string_size = static_cast<size_t>(-1);
  // NOLINTEND(readability-identifier-naming)

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) {
    open.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Error&) {
    open.pop_back();
    return true;
  }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(size_t, Error&) { return true; }
  bool on_key_part(json::string_view part, size_t, Error&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, size_t, Error&) {
    key.append(part.data(), part.size());
    if (!open.back().insert(std::move(key)).second) duplicate = true;
    key.clear();
    return true;
  }
  bool on_string_part(json::string_view, size_t, Error&) { return true; }
  bool on_string(json::string_view, size_t, Error&) { return true; }
  bool on_number_part(json::string_view, Error&) { return true; }
  bool on_int64(int64_t, json::string_view, Error&) { return true; }
  bool on_uint64(uint64_t, json::string_view, Error&) { return true; }
  bool on_double(double, json::string_view, Error&) { return true; }
  bool on_bool(bool, Error&) { return true; }
  bool on_null(Error&) { return true; }
  bool on_comment_part(json::string_view, Error&) { return true; }
  bool on_comment(json::string_view, Error&) { return true; }

  std::vector<std::set<std::string>> open;
  std::string key;
  bool duplicate = false;
};

// Whether an object of a JSON text has the same key twice. Boost.JSON uses the last one, another
// parser might use the first. `{"lr":1e-4,"lr":1}` must not mean different things to a program that
// checked a request and to this one. `text` has been parsed already, with a depth of at most
// `max_depth`.
bool has_duplicate_keys(std::string_view text, int max_depth) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(max_depth);
  json::basic_parser<KeyCollector> parser(options);
  boost::system::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  return parser.handler().duplicate;
}

// The id as it is returned in the reply; empty if it is not valid.
std::optional<std::string> parse_id(const json::object& root) {
  const json::value* id = root.if_contains("id");
  if (id == nullptr || id->is_null()) return "null";
  if (id->is_int64() || id->is_uint64()) return json::serialize(*id);
  if (id->is_string() && id->get_string().size() <= kMaxIdBytes) return json::serialize(*id);
  return std::nullopt;
}

// The first violation of the request format, except in params; empty if there is none.
std::optional<ProtocolError> find_format_error(const std::string& id, const json::object& root) {
  for (const auto& field : root) {
    const std::string_view key(field.key().data(), field.key().size());
    if (key != "id" && key != "method" && key != "params" && key != "jsonrpc") {
      return protocol_error(
          id, ErrorCode::kInvalidRequest,
          "unknown field " + quote_for_message(key) + "; a request has id, method and params");
    }
  }
  const json::value* version = root.if_contains("jsonrpc");
  if (version != nullptr && *version != "2.0")
    return protocol_error(id, ErrorCode::kInvalidRequest, "jsonrpc must be \"2.0\" if present");
  const json::value* method = root.if_contains("method");
  if (method == nullptr || !method->is_string())
    return protocol_error(id, ErrorCode::kInvalidRequest,
                          "method is required and must be a string");
  return std::nullopt;
}

std::variant<Request, ProtocolError> parse_object(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error)
    return protocol_error("null", ErrorCode::kParseError,
                          "the line is not JSON: " + error.message());
  // The caller has checked that the line starts with '{'.
  const json::object& root = value.get_object();
  const auto id = parse_id(root);
  if (!id) {
    return protocol_error("null", ErrorCode::kInvalidRequest,
                          "id must be an integer, null or a string of at most " +
                              std::to_string(kMaxIdBytes) + " bytes");
  }
  if (has_duplicate_keys(line, kMaxDepth))
    return protocol_error(*id, ErrorCode::kInvalidRequest, "duplicate field");
  if (auto maybe_error = find_format_error(*id, root)) return *std::move(maybe_error);
  return request_of(*id, parse_call(root.at("method").get_string(), root.if_contains("params")));
}

}  // namespace

std::variant<Request, ProtocolError> parse_request(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin != std::string_view::npos && line[begin] == '{')
    return parse_object(line.substr(begin));
  return parse_words(line);
}

std::string render_request(std::string_view id, std::string_view method, std::string_view params) {
  std::string line = "{\"id\":" + std::string(id) + ",\"method\":";
  line += json::serialize(json::value(json::string_view(method.data(), method.size())));
  if (!params.empty()) line += ",\"params\":" + std::string(params);
  return line + "}";
}

}  // namespace stoker::control
