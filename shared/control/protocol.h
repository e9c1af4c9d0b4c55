// Protocol: the line format between the daemon and its clients, specified in
// docs/control-protocol.md.
//
// One request per line, one reply per line. A request is a JSON object,
// {"id":1,"method":"pause"}, or plain words as typed by a person: `set optimizer.lr 1e-4`.
// A reply is {"id":1,"result":{…}} or
// {"id":1,"error":{"code":…,"message":"…","data":{"kind":"busy"}}}. A request with an unknown
// method or field is rejected without any effect.
//
// Threads: values and functions of their arguments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/status.h"
#include "shared/control/command.h"

namespace stoker::control {

// ---- Limits of a line. Limits of a connection are in daemon/server/limits.h.
inline constexpr size_t kMaxLineBytes = 64 << 10;  // without the newline
inline constexpr int kMaxDepth = 32;               // nesting depth of JSON
inline constexpr size_t kMaxIdBytes = 256;         // of a string id

// The error codes of JSON-RPC 2.0. kFailed is specific to stoker: the request is valid, and `kind`
// says why it was not executed.
enum class ErrorCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kUnknownMethod = -32601,
  kInvalidParams = -32602,
  kFailed = -32000,
};

// A valid request.
struct Request {
  std::string id = "null";  // as JSON text: a number, a string or null; echoed in the reply
  Call call;
};

// Why a request was not executed.
struct ProtocolError {
  std::string id = "null";
  ErrorCode code = ErrorCode::kFailed;
  Status why;
};

// `line` without its newline; a trailing carriage return is accepted. kParseError: neither JSON nor
// plain words. The peer does not speak this protocol, and its further input cannot be trusted.
std::variant<Request, ProtocolError> parse_request(std::string_view line);

// A line that a client gets without a request: a notification of JSON-RPC 2.0. `params` is a JSON
// object.
std::string render_notification(std::string_view method, std::string_view params);
struct Notification {
  std::string method;
  std::string params;  // a JSON object
};
// kCorrupt: not a notification.
Result<Notification> parse_notification(std::string_view line);

// Lines without the newline. `result` is a JSON object; line breaks in it are replaced by spaces.
std::string render_request(std::string_view id, std::string_view method, std::string_view params);
std::string render_result(std::string_view id, std::string_view result);
std::string render_error(const ProtocolError& error);

// ---- Client side

// The result, a JSON object, or the daemon's error with its code and message. kCorrupt: not a reply
// of this protocol.
Result<std::string> parse_reply(std::string_view line);

}  // namespace stoker::control
