#include "shared/control/protocol.h"

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/control/duplicate_keys.h"
#include "shared/control/quote_for_message.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

constexpr std::array<MethodInfo, 13> kMethods = {{
    {Method::kHello, "hello", false, "hello", "protocol version, build and methods"},
    {Method::kHelp, "help", false, "help", "this list"},
    {Method::kStatus, "status", false, "status", "show the training status"},
    {Method::kPause, "pause", true, "pause", "pause after the current step"},
    {Method::kResume, "resume", true, "resume", "resume training"},
    {Method::kCheckpoint, "checkpoint", true, "checkpoint",
     "save a checkpoint now; answers when it is durable"},
    {Method::kStop, "stop", true, "stop", "finish the step, save a checkpoint, exit"},
    {Method::kSet, "set", true, "set lr VALUE", "change the learning rate"},
    {Method::kAttach, "attach", true, "attach", "the ring, as a file descriptor, to fill batches"},
    {Method::kProfile, "profile", true, "profile STEPS [kernels]",
     "profile the next steps; answers when the trace is written"},
    {Method::kInspect, "inspect_open", true, "inspect_open GLOB [EVERY]",
     "inspect parameters, gradients and activations"},
    {Method::kInspectRead, "inspect_read", false, "inspect_read INSPECTION [AFTER]",
     "read the records of an inspection"},
    {Method::kInspectClose, "inspect_close", true, "inspect_close INSPECTION", "end an inspection"},
}};

// What may be set, and between which bounds. The bounds are exclusive.
struct Setting {
  std::string_view key;
  double above;
  double below;
};
constexpr std::array<Setting, 1> kSettings = {{{"lr", 0.0, kMaxLearningRate}}};

std::string format_number(double value) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6).ptr;
  return std::string(text, end);
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

ProtocolError protocol_error(const std::string& id, ErrorCode code, std::string message) {
  return ProtocolError{id, code, Status(StatusCode::kInvalidArgument, std::move(message))};
}

ProtocolError unknown_method(const std::string& id, std::string_view name) {
  return protocol_error(
      id, ErrorCode::kUnknownMethod,
      "unknown method " + quote_for_message(name) + "; there are: " + method_names());
}

// Whether `key` may be set to `value`.
std::optional<ProtocolError> check_setting(const std::string& id, std::string_view key,
                                           double value) {
  for (const Setting& setting : kSettings) {
    if (setting.key != key) continue;
    if (std::isfinite(value) && value > setting.above && value < setting.below) return std::nullopt;
    return protocol_error(id, ErrorCode::kInvalidParams,
                          std::string(key) + " must be a number above " +
                              format_number(setting.above) + " and below " +
                              format_number(setting.below));
  }
  return protocol_error(id, ErrorCode::kInvalidParams,
                        "nothing called " + quote_for_message(key) +
                            " can be set while training; there is: " + setting_names());
}

// One that looks inside training; `params` as they were sent, JSON or words.
template <typename Params>
std::variant<Request, ProtocolError> parse_inspection(Request request, const Params& params) {
  const auto take = [&request](auto parsed, auto* into) {
    if (parsed.ok()) *into = *std::move(parsed);
    return parsed.status();
  };
  Status status;
  switch (request.method) {
    case Method::kProfile:
      status = take(parse_profile(params), &request.profile);
      break;
    case Method::kInspect:
      status = take(parse_inspect(params), &request.inspection);
      break;
    case Method::kInspectRead:
      status = take(parse_inspect_read(params), &request.inspection_id);
      break;
    default:
      status = take(parse_inspect_close(params), &request.inspection_id);
  }
  if (status.ok()) return request;
  return protocol_error(request.id, ErrorCode::kInvalidParams, status.message());
}

bool is_inspection(Method method) { return method >= Method::kProfile; }

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

std::variant<Request, ProtocolError> parse_words(std::string_view line) {
  const std::string id = "null";
  if (!is_typed_text(line)) {
    return protocol_error(id, ErrorCode::kParseError,
                          "the line is neither a JSON object nor words; try: help");
  }
  const auto words = split_words(line);
  if (words.empty())
    return protocol_error(id, ErrorCode::kInvalidRequest, "the line is empty; try: help");
  const MethodInfo* info = find_method(words[0]);
  if (info == nullptr) return unknown_method(id, words[0]);
  Request request{.id = id, .method = info->method};
  if (is_inspection(request.method))
    return parse_inspection(std::move(request), std::span(words).subspan(1));
  if (request.method != Method::kSet) {
    if (words.size() == 1) return request;
    return protocol_error(id, ErrorCode::kInvalidParams,
                          std::string(info->name) + " takes nothing after it");
  }
  if (words.size() != 3) {
    return protocol_error(id, ErrorCode::kInvalidParams,
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
std::optional<std::string> parse_id(const json::object& root) {
  const json::value* id = root.if_contains("id");
  if (id == nullptr || id->is_null()) return "null";
  if (id->is_int64() || id->is_uint64()) return json::serialize(*id);
  if (id->is_string() && id->get_string().size() <= kMaxIdBytes) return json::serialize(*id);
  return std::nullopt;
}

std::variant<Request, ProtocolError> parse_set(Request request, const json::value* params) {
  const std::string how = "set takes one setting, such as {\"params\":{\"lr\":1e-4}}";
  if (params == nullptr || !params->is_object() || params->get_object().size() != 1)
    return protocol_error(request.id, ErrorCode::kInvalidParams, how);
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
std::optional<ProtocolError> check_shape(const std::string& id, const json::object& root) {
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
    return protocol_error(id, ErrorCode::kInvalidRequest,
                          "jsonrpc must be \"2.0\" where it is given");
  const json::value* method = root.if_contains("method");
  if (method == nullptr || !method->is_string())
    return protocol_error(id, ErrorCode::kInvalidRequest, "method is missing, or is not a string");
  return std::nullopt;
}

std::variant<Request, ProtocolError> parse_object(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error)
    return protocol_error("null", ErrorCode::kParseError,
                          "the line is not JSON: " + error.message());
  const json::object& root = value.get_object();  // the line begins with '{'
  const auto id = parse_id(root);
  if (!id) {
    return protocol_error("null", ErrorCode::kInvalidRequest,
                          "id must be a whole number, null, or a string of at most " +
                              std::to_string(kMaxIdBytes) + " bytes");
  }
  if (has_duplicate_keys(line, kMaxDepth))
    return protocol_error(*id, ErrorCode::kInvalidRequest, "a field is given twice");
  if (auto wrong = check_shape(*id, root)) return *std::move(wrong);
  const json::string& name = root.at("method").get_string();
  const MethodInfo* info = find_method(std::string_view(name.data(), name.size()));
  if (info == nullptr) return unknown_method(*id, std::string_view(name.data(), name.size()));
  Request request{.id = *id, .method = info->method};
  const json::value* params = root.if_contains("params");
  if (request.method == Method::kSet) return parse_set(std::move(request), params);
  if (is_inspection(request.method)) return parse_inspection(std::move(request), params);
  if (params != nullptr && !(params->is_object() && params->get_object().empty()))
    return protocol_error(*id, ErrorCode::kInvalidParams,
                          std::string(info->name) + " takes no params");
  return request;
}

}  // namespace

std::span<const MethodInfo> methods() { return kMethods; }

const MethodInfo& method_info(Method method) { return kMethods[static_cast<size_t>(method)]; }

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
