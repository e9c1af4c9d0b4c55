#include "shared/data/stream/producer_handshake.h"

#include <algorithm>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "shared/base/json_parser.h"

namespace stoker::data::stream {
namespace {

constexpr int64_t kHandshakeFormat = 1;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

Status invalid(const std::string& what) { return Status(StatusCode::kInvalidArgument, what); }

Status check_format(const boost::json::object& hello) {
  const auto* const format = hello.if_contains("format");
  if (format == nullptr || !format->is_int64()) return invalid("format must be an integer");
  if (format->as_int64() == kHandshakeFormat) return {};
  return Status(StatusCode::kMismatch, "format " + std::to_string(format->as_int64()) +
                                           " is not supported; this stokerd supports format " +
                                           std::to_string(kHandshakeFormat));
}

Result<ProducerHello> read_hello(const boost::json::object& hello) {
  STOKER_RETURN_IF_ERROR(check_format(hello));
  ProducerHello read;
  for (const auto& [key, value] : hello) {
    if (key == "format") continue;
    if (key == "name" && value.is_string()) {
      read.name = std::string(value.as_string());
    } else if (key == "replay" && value.is_bool()) {
      read.can_replay = value.as_bool();
    } else if (key == "end" && value.is_bool() && value.as_bool()) {
      read.ends_stream = true;
    } else {
      return invalid("'" + std::string(key) +
                     "' is no key of format 1 (name, replay, end), or has the wrong type");
    }
  }
  if (read.ends_stream) {
    if (hello.size() == 2) return read;
    return invalid("end cannot be combined with other keys");
  }
  if (read.name.empty() || read.name.size() > kMaxProducerName ||
      !std::ranges::all_of(read.name, is_name_character))
    return invalid("name must have 1 to " + std::to_string(kMaxProducerName) +
                   " characters of a-z, A-Z, 0-9, '.', '_' and '-'");
  return read;
}

std::string to_line(const boost::json::object& object) {
  return boost::json::serialize(object) + '\n';
}

}  // namespace

Result<ProducerHello> parse_hello(std::string_view line) {
  boost::system::error_code error;
  const boost::json::value value = parse_json(line, error);
  if (error || !value.is_object())
    return Status(StatusCode::kCorrupt,
                  "the first line must be a JSON object, such as {\"format\":1,\"name\":\"a\"}");
  return read_hello(value.get_object());
}

std::string hello_reply(uint64_t offset, uint64_t records) {
  return to_line({{"format", kHandshakeFormat}, {"offset", offset}, {"records", records}});
}

std::string end_reply() { return to_line({{"format", kHandshakeFormat}, {"end", true}}); }

std::string hello_error(std::string_view error, bool can_retry) {
  return to_line({{"format", kHandshakeFormat}, {"error", error}, {"retry", can_retry}});
}

}  // namespace stoker::data::stream
