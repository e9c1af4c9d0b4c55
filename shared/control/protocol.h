// Protocol: lines between the daemon and its clients. docs/control-protocol.md is the manual.
//
// One request a line, one reply a line. A request is a JSON object,
// {"id":1,"method":"set","params":{"lr":1e-4}}, or the bare words that a person types: `set lr
// 1e-4`. A reply is {"id":1,"result":{…}} or {"id":1,"error":{"code":…,
// "message":"…","data":{"kind":"busy"}}}. What is not known is refused, and then nothing is done.
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

inline constexpr int kProtocolVersion = 2;

// ---- Limits of a line. Those of a connection are in daemon/control/limits.h.
inline constexpr size_t kMaxLineBytes = 64 << 10;  // without the newline
inline constexpr int kMaxDepth = 32;               // of nested JSON
inline constexpr size_t kMaxIdBytes = 256;         // of an id that is a string

// What JSON-RPC 2.0 calls these; kFailed is ours: the request was understood, and `kind` says why
// nothing was done.
enum class ErrorCode : int {
  kParseError = -32700,
  kInvalidRequest = -32600,
  kUnknownMethod = -32601,
  kInvalidParams = -32602,
  kFailed = -32000,
};

// A request that was understood and whose values are allowed.
struct Request {
  std::string id = "null";  // as JSON text: a number, a string or null; goes back as it came
  Call call;
};

// Why nothing was done.
struct ProtocolError {
  std::string id = "null";
  ErrorCode code = ErrorCode::kFailed;
  Status why;
};

// `line` without its newline; a carriage return before it is forgiven. kParseError: not JSON and
// not words; the peer does not speak this protocol, and what follows cannot be trusted.
std::variant<Request, ProtocolError> parse_request(std::string_view line);

// Lines without the newline. `result` is a JSON object; line breaks in it become spaces.
std::string render_request(std::string_view id, std::string_view method, std::string_view params);
std::string render_result(std::string_view id, std::string_view result);
std::string render_error(const ProtocolError& error);

// ---- The client's side

// The result, a JSON object; or the daemon's error with its code and message. kCorrupt: not a reply
// of this protocol.
Result<std::string> parse_reply(std::string_view line);

}  // namespace stoker::control
