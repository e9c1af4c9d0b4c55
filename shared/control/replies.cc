// Reply lines: rendered by the daemon, parsed by its clients.
#include <optional>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/control/protocol.h"

namespace stoker::control {
namespace {

namespace json = boost::json;

std::optional<StatusCode> parse_status_code(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(kLastStatusCode); ++i) {
    if (to_string(static_cast<StatusCode>(i)) == name) return static_cast<StatusCode>(i);
  }
  return std::nullopt;
}

Status parse_error(const json::value& error) {
  const json::object* fields = error.if_object();
  const json::value* message = fields != nullptr ? fields->if_contains("message") : nullptr;
  if (message == nullptr || !message->is_string())
    return Status(StatusCode::kCorrupt, "the daemon's error reply has no message");
  StatusCode code = StatusCode::kInternal;
  if (const json::value* data = fields->if_contains("data"); data != nullptr && data->is_object()) {
    const json::value* kind = data->get_object().if_contains("kind");
    if (kind != nullptr && kind->is_string())
      code =
          parse_status_code(std::string_view(kind->get_string())).value_or(StatusCode::kInternal);
  }
  if (code == StatusCode::kOk) code = StatusCode::kInternal;
  return Status(code, std::string(message->get_string()));
}

}  // namespace

std::string render_result(std::string_view id, std::string_view result) {
  while (result.ends_with('\n')) result.remove_suffix(1);
  std::string line = "{\"id\":" + std::string(id) +
                     ",\"result\":" + (result.empty() ? "{}" : std::string(result)) + "}";
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

std::string render_notification(std::string_view method, std::string_view params) {
  return "{\"method\":\"" + std::string(method) + "\",\"params\":" + std::string(params) + "}";
}

Result<Notification> parse_notification(std::string_view line) {
  return parse_json_object<Notification>(line, "the line", [](const json::object& root) {
    return Notification{.method = root.at("method").as_string().c_str(),
                        .params = json::serialize(root.at("params").as_object())};
  });
}

std::string render_error(const ProtocolError& protocol_error) {
  const std::string kind(to_string(protocol_error.why.code()));
  const json::object error{{"code", static_cast<int>(protocol_error.code)},
                           {"message", valid_utf8(protocol_error.why.message())},
                           {"data", json::object{{"kind", kind}}}};
  return "{\"id\":" + protocol_error.id + ",\"error\":" + json::serialize(error) + "}";
}

Result<std::string> parse_reply(std::string_view line) {
  boost::system::error_code error;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error || !value.is_object())
    return Status(StatusCode::kCorrupt,
                  "the reply is not a JSON object: " + quote_for_message(line));
  const json::object& root = value.get_object();
  if (const json::value* failed = root.if_contains("error")) return parse_error(*failed);
  const json::value* result = root.if_contains("result");
  if (result == nullptr || !result->is_object())
    return Status(StatusCode::kCorrupt,
                  "the reply has neither result nor error: " + quote_for_message(line));
  return json::serialize(*result);
}

}  // namespace stoker::control
