#include "shared/metrics/metrics_record.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/metrics/utf8.h"

namespace stoker::metrics {
namespace {

namespace json = boost::json;

void append_text(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <typename Number>
void append_number(std::string& out, Number number) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number);
  out.append(text, end);
}

struct ValueWriter {
  std::string& out;
  void operator()(std::nullptr_t) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(uint64_t value) const { append_number(out, value); }
  void operator()(int64_t value) const { append_number(out, value); }
  void operator()(double value) const {
    if (std::isfinite(value)) {
      append_number(out, value);
    } else {
      out += "null";
    }
  }
  void operator()(const std::string& value) const { append_text(out, value); }
};

std::optional<MetricsRecord::Value> to_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return MetricsRecord::Value(nullptr);
    case json::kind::bool_:
      return MetricsRecord::Value(value.get_bool());
    case json::kind::int64:
      if (value.get_int64() >= 0)
        return MetricsRecord::Value(static_cast<uint64_t>(value.get_int64()));
      return MetricsRecord::Value(value.get_int64());
    case json::kind::uint64:
      return MetricsRecord::Value(value.get_uint64());
    case json::kind::double_:
      return MetricsRecord::Value(value.get_double());
    case json::kind::string:
      return MetricsRecord::Value(std::string(value.get_string()));
    case json::kind::array:
    case json::kind::object:
      break;
  }
  return std::nullopt;
}

}  // namespace

MetricsRecord& MetricsRecord::add_value(std::string_view name, Value value) {
  fields_.emplace_back(std::string(name), std::move(value));
  return *this;
}

const MetricsRecord::Value* MetricsRecord::find(std::string_view name) const {
  for (const auto& [key, value] : fields_)
    if (key == name) return &value;
  return nullptr;
}

std::optional<uint64_t> MetricsRecord::find_count(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr || !std::holds_alternative<uint64_t>(*value)) return std::nullopt;
  return std::get<uint64_t>(*value);
}

std::optional<double> MetricsRecord::find_number(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* count = std::get_if<uint64_t>(value)) return static_cast<double>(*count);
  if (const auto* whole = std::get_if<int64_t>(value)) return static_cast<double>(*whole);
  if (std::holds_alternative<std::nullptr_t>(*value))
    return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::optional<std::string> MetricsRecord::find_text(std::string_view name) const {
  const Value* value = find(name);
  if (value == nullptr || !std::holds_alternative<std::string>(*value)) return std::nullopt;
  return std::get<std::string>(*value);
}

std::string to_json(const MetricsRecord& record) {
  std::string out = "{";
  for (const auto& [name, value] : record.fields()) {
    if (out.size() > 1) out += ',';
    append_text(out, name);
    out += ':';
    std::visit(ValueWriter{out}, value);
  }
  return out + "}";
}

Result<MetricsRecord> parse_record(std::string_view line) {
  boost::system::error_code error;
  constexpr size_t kMaxDepth = 4;
  const json::value value = parse_json(line, error, kMaxDepth);
  if (error) return Status(StatusCode::kCorrupt, "not JSON (" + error.message() + ")");
  const json::object* object = value.if_object();
  if (object == nullptr) return Status(StatusCode::kCorrupt, "not a JSON object");
  MetricsRecord record;
  for (const auto& field : *object) {
    const std::string_view name(field.key().data(), field.key().size());
    auto one = to_value(field.value());
    if (!one.has_value()) {
      return Status(StatusCode::kCorrupt,
                    "field \"" + std::string(name) + "\" is a list or an object");
    }
    record.add_value(name, *std::move(one));
  }
  return record;
}

}  // namespace stoker::metrics
