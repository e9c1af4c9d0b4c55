#include "shared/control/protocol.h"

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/exact_json.h"
#include "shared/control/duplicate_keys.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

constexpr std::array<MethodInfo, 13> kMethods = {{
    {Method::kHello, "hello", false, "hello", "protocol version, build and methods"},
    {Method::kHelp, "help", false, "help", "this list"},
    {Method::kStatus, "status", false, "status", "what training is doing"},
    {Method::kPause, "pause", true, "pause", "stand still after the step in progress"},
    {Method::kResume, "resume", true, "resume", "go on after a pause"},
    {Method::kCheckpoint, "checkpoint", true, "checkpoint",
     "save now; answers when it is committed"},
    {Method::kStop, "stop", true, "stop", "finish the step, save, end"},
    {Method::kSet, "set", true, "set lr VALUE", "change a setting while training: lr"},
    {Method::kAttach, "attach", true, "attach", "the ring, as a file descriptor, to fill batches"},
    {Method::kProfile, "profile", true, "profile STEPS [kernels]",
     "time the next steps by phase; answers when the trace is written"},
    {Method::kTap, "tap", true, "tap GLOB [EVERY]",
     "statistics of parameters, gradients and outputs, as rows"},
    {Method::kTapRows, "tap_rows", false, "tap_rows TAP [AFTER]", "the rows of a tap so far"},
    {Method::kUntap, "untap", true, "untap TAP", "end a tap"},
}};

// What may be set, and between which bounds. The bounds are exclusive.
struct Setting {
  std::string_view key;
  double above;
  double below;
};
constexpr std::array<Setting, 1> kSettings = {{{"lr", 0.0, kMaxLearningRate}}};

std::string short_number(double value) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr;
  return std::string(text, end);
}

// What a peer sent, fit to stand in a message: short, and printable.
std::string quoted(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (text.size() > kShown ? "…'" : "'");
}

std::string setting_names() {
  std::string names;
  for (const Setting& setting : kSettings)
    names += (names.empty() ? "" : ", ") + std::string(setting.key);
  return names;
}

std::string method_names() {
  std::string names;
  for (const MethodInfo& info : kMethods)
    names += (names.empty() ? "" : " ") + std::string(info.name);
  return names;
}

const MethodInfo* find_method(std::string_view name) {
  for (const MethodInfo& info : kMethods) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

Refusal refusal(const std::string& id, ErrorCode code, std::string message) {
  return Refusal{id, code, Status(Code::kInvalidArgument, std::move(message))};
}

Refusal unknown_method(const std::string& id, std::string_view name) {
  return refusal(id, ErrorCode::kUnknownMethod,
                 "unknown method " + quoted(name) + "; there are: " + method_names());
}

// Whether `key` may be set to `value`.
std::optional<Refusal> check_setting(const std::string& id, std::string_view key, double value) {
  for (const Setting& setting : kSettings) {
    if (setting.key != key) continue;
    if (std::isfinite(value) && value > setting.above && value < setting.below) return std::nullopt;
    return refusal(id, ErrorCode::kInvalidParams,
                   std::string(key) + " must be a number above " + short_number(setting.above) +
                       " and below " + short_number(setting.below));
  }
  return refusal(
      id, ErrorCode::kInvalidParams,
      "nothing called " + quoted(key) + " can be set while training; there is: " + setting_names());
}

// One that looks inside training; `params` as they were sent, JSON or words.
template <typename Params>
std::variant<Request, Refusal> parse_look(Request request, const Params& params) {
  const auto take = [&request](auto parsed, auto* into) {
    if (parsed.ok()) *into = *std::move(parsed);
    return parsed.status();
  };
  Status status;
  switch (request.method) {
    case Method::kProfile:
      status = take(parse_profile(params), &request.profile);
      break;
    case Method::kTap:
      status = take(parse_tap(params), &request.tap);
      break;
    case Method::kTapRows:
      status = take(parse_tap_rows(params), &request.tap_reference);
      break;
    default:
      status = take(parse_untap(params), &request.tap_reference);
  }
  if (status.ok()) return request;
  return refusal(request.id, ErrorCode::kInvalidParams, status.message());
}

bool looks_inside(Method method) { return method >= Method::kProfile; }

// ---- Words

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

bool is_typed_text(std::string_view line) {
  for (const char c : line) {
    if ((c < 0x20 || c >= 0x7f) && c != '\t') return false;
  }
  return true;
}

std::variant<Request, Refusal> parse_words(std::string_view line) {
  const std::string id = "null";
  if (!is_typed_text(line)) {
    return refusal(id, ErrorCode::kParseError,
                   "the line is neither a JSON object nor words; try: help");
  }
  const auto words = split_words(line);
  if (words.empty()) return refusal(id, ErrorCode::kInvalidRequest, "the line is empty; try: help");
  const MethodInfo* info = find_method(words[0]);
  if (info == nullptr) return unknown_method(id, words[0]);
  Request request{.id = id, .method = info->method};
  if (looks_inside(request.method))
    return parse_look(std::move(request), std::span(words).subspan(1));
  if (request.method != Method::kSet) {
    if (words.size() == 1) return request;
    return refusal(id, ErrorCode::kInvalidParams,
                   std::string(info->name) + " takes nothing after it");
  }
  if (words.size() != 3) {
    return refusal(id, ErrorCode::kInvalidParams,
                   "set takes a name and a value, such as: set lr 1e-4");
  }
  const auto [end, error] =
      std::from_chars(words[2].data(), words[2].data() + words[2].size(), request.value);
  if (error != std::errc() || end != words[2].data() + words[2].size())
    request.value = std::nan("");
  if (auto wrong = check_setting(id, words[1], request.value)) return *std::move(wrong);
  request.key = words[1];
  return request;
}

// ---- JSON

// The id as it goes back, or nothing when it is not allowed to be one.
std::optional<std::string> maybe_id(const json::object& root) {
  const json::value* id = root.if_contains("id");
  if (id == nullptr || id->is_null()) return "null";
  if (id->is_int64() || id->is_uint64()) return json::serialize(*id);
  if (id->is_string() && id->get_string().size() <= kMaxIdBytes) return json::serialize(*id);
  return std::nullopt;
}

std::variant<Request, Refusal> parse_set(Request request, const json::value* params) {
  const std::string how = "set takes one setting, such as {\"params\":{\"lr\":1e-4}}";
  if (params == nullptr || !params->is_object() || params->get_object().size() != 1)
    return refusal(request.id, ErrorCode::kInvalidParams, how);
  const auto& field = *params->get_object().begin();
  request.key = field.key();
  request.value = std::nan("");
  if (field.value().is_number()) {
    boost::system::error_code error;
    request.value = field.value().to_number<double>(error);
    if (error) request.value = std::nan("");
  }
  if (auto wrong = check_setting(request.id, request.key, request.value)) return *std::move(wrong);
  return request;
}

// The first thing about the object that is not a request, apart from its parameters.
std::optional<Refusal> check_shape(const std::string& id, const json::object& root) {
  for (const auto& field : root) {
    const std::string_view key(field.key().data(), field.key().size());
    if (key != "id" && key != "method" && key != "params" && key != "jsonrpc") {
      return refusal(id, ErrorCode::kInvalidRequest,
                     "unknown field " + quoted(key) + "; a request has id, method and params");
    }
  }
  const json::value* version = root.if_contains("jsonrpc");
  if (version != nullptr && *version != "2.0")
    return refusal(id, ErrorCode::kInvalidRequest, "jsonrpc must be \"2.0\" where it is given");
  const json::value* method = root.if_contains("method");
  if (method == nullptr || !method->is_string())
    return refusal(id, ErrorCode::kInvalidRequest, "method is missing, or is not a string");
  return std::nullopt;
}

std::variant<Request, Refusal> parse_object(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error)
    return refusal("null", ErrorCode::kParseError, "the line is not JSON: " + error.message());
  const json::object& root = value.get_object();  // the line begins with '{'
  const auto id = maybe_id(root);
  if (!id) {
    return refusal("null", ErrorCode::kInvalidRequest,
                   "id must be a whole number, null, or a string of at most " +
                       std::to_string(kMaxIdBytes) + " bytes");
  }
  if (has_duplicate_keys(line, kMaxDepth))
    return refusal(*id, ErrorCode::kInvalidRequest, "a field is given twice");
  if (auto wrong = check_shape(*id, root)) return *std::move(wrong);
  const json::string& name = root.at("method").get_string();
  const MethodInfo* info = find_method(std::string_view(name.data(), name.size()));
  if (info == nullptr) return unknown_method(*id, std::string_view(name.data(), name.size()));
  Request request{.id = *id, .method = info->method};
  const json::value* params = root.if_contains("params");
  if (request.method == Method::kSet) return parse_set(std::move(request), params);
  if (looks_inside(request.method)) return parse_look(std::move(request), params);
  if (params != nullptr && !(params->is_object() && params->get_object().empty()))
    return refusal(*id, ErrorCode::kInvalidParams, std::string(info->name) + " takes no params");
  return request;
}

std::optional<Code> maybe_code_of_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Code::kInternal); ++i) {
    if (code_name(static_cast<Code>(i)) == name) return static_cast<Code>(i);
  }
  return std::nullopt;
}

Status status_of_error(const json::value& error) {
  const json::object* fields = error.if_object();
  const json::value* message = fields != nullptr ? fields->if_contains("message") : nullptr;
  if (message == nullptr || !message->is_string())
    return Status(Code::kCorrupt, "the daemon's error has no message");
  Code code = Code::kInternal;
  if (const json::value* data = fields->if_contains("data"); data != nullptr && data->is_object()) {
    const json::value* kind = data->get_object().if_contains("kind");
    if (kind != nullptr && kind->is_string())
      code = maybe_code_of_name(std::string_view(kind->get_string())).value_or(Code::kInternal);
  }
  if (code == Code::kOk) code = Code::kInternal;
  return Status(code, std::string(message->get_string()));
}

}  // namespace

std::span<const MethodInfo> methods() { return kMethods; }

const MethodInfo& info_of(Method method) { return kMethods[static_cast<size_t>(method)]; }

std::variant<Request, Refusal> parse_request(std::string_view line) {
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

std::string render_result(std::string_view id, std::string_view result) {
  while (result.ends_with('\n')) result.remove_suffix(1);
  std::string line = "{\"id\":" + std::string(id) +
                     ",\"result\":" + (result.empty() ? "{}" : std::string(result)) + "}";
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

std::string render_error(const Refusal& refusal) {
  const std::string kind(code_name(refusal.why.code()));
  const json::object error{{"code", static_cast<int>(refusal.code)},
                           {"message", refusal.why.message()},
                           {"data", json::object{{"kind", kind}}}};
  return "{\"id\":" + refusal.id + ",\"error\":" + json::serialize(error) + "}";
}

Result<std::string> parse_reply(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error || !value.is_object())
    return Status(Code::kCorrupt, "the reply is not a JSON object: " + quoted(line));
  const json::object& root = value.get_object();
  if (const json::value* failed = root.if_contains("error")) return status_of_error(*failed);
  const json::value* result = root.if_contains("result");
  if (result == nullptr || !result->is_object())
    return Status(Code::kCorrupt, "the reply has neither result nor error: " + quoted(line));
  return json::serialize(*result);
}

}  // namespace stoker::control
