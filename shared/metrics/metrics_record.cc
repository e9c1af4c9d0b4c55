#include "shared/metrics/metrics_record.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <iterator>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"
#include "shared/base/utf8.h"

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

struct ValueWriter {
  std::string& out;
  void operator()(std::nullptr_t) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(uint64_t value) const { out += format_shortest(value); }
  void operator()(int64_t value) const { out += format_shortest(value); }
  void operator()(double value) const {
    out += std::isfinite(value) ? format_shortest(value) : "null";
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

// Reads a line as to_json() writes it: without spaces, escapes, and characters that are not ASCII. A run can
// have 200,000 records, and a page waits for all of them. Whatever else a line has, parse_json() reads.
class PlainLineReader {
 public:
  explicit PlainLineReader(std::string_view line) : rest_(line) {}

  // nullopt: not such a line.
  std::optional<MetricsRecord> read() {
    // Names are compared with all before; a line of another user can have any number.
    constexpr size_t kMaxFields = 256;
    MetricsRecord record;
    if (!take("{")) return std::nullopt;
    do {
      const auto name = read_text();
      if (!name || !take(":") || record.fields().size() == kMaxFields ||
          record.find(*name) != nullptr)
        return std::nullopt;
      auto value = read_value();
      if (!value) return std::nullopt;
      record.add_value(*name, *std::move(value));
    } while (take(","));
    if (rest_ != "}") return std::nullopt;
    return record;
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  std::optional<std::string_view> read_text() {
    if (!take("\"")) return std::nullopt;
    const size_t end = rest_.find('"');
    if (end == rest_.npos) return std::nullopt;
    const std::string_view text = rest_.substr(0, end);
    for (const char c : text)
      if (c < 0x20 || c == 0x7F || c == '\\') return std::nullopt;
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<MetricsRecord::Value> read_value() {
    if (rest_.starts_with('"')) {
      const auto text = read_text();
      if (!text) return std::nullopt;
      return MetricsRecord::Value(std::string(*text));
    }
    if (take("null")) return MetricsRecord::Value(nullptr);
    const std::string_view token = rest_.substr(0, rest_.find_first_of(",}"));
    rest_.remove_prefix(token.size());
    return number_of(token);
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  // Of JSON's grammar: std::from_chars() also reads "01" and "1.".
  static std::optional<MetricsRecord::Value> number_of(std::string_view token) {
    size_t at = token.starts_with('-') ? 1 : 0;
    const auto digits = [&] {
      const size_t begin = at;
      while (at < token.size() && is_digit(token[at])) ++at;
      return at - begin;
    };
    const size_t first = at, whole = digits();
    if (whole == 0 || (whole > 1 && token[first] == '0')) return std::nullopt;
    if (at == token.size() && first == 0) return parsed<uint64_t>(token);
    if (at < token.size() && token[at] == '.' && (++at, digits() == 0)) return std::nullopt;
    if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
      if (++at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
      if (digits() == 0) return std::nullopt;
    }
    // A negative integer is rare.
    if (at != token.size() || token.find_first_of(".eE") == token.npos) return std::nullopt;
    return parsed<double>(token);
  }
  template <typename Number>
  static std::optional<MetricsRecord::Value> parsed(std::string_view token) {
    Number number = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
    if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
    return MetricsRecord::Value(number);
  }

  std::string_view rest_;
};

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

namespace {

std::optional<double> number_of(const MetricsRecord::Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* count = std::get_if<uint64_t>(&value)) return static_cast<double>(*count);
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (std::holds_alternative<std::nullptr_t>(value))
    return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

}  // namespace

std::optional<double> MetricsRecord::find_number(std::string_view name) const {
  const Value* value = find(name);
  return value == nullptr ? std::nullopt : number_of(*value);
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
  if (auto plain = PlainLineReader(line).read()) return *std::move(plain);
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

namespace {

Status missing(std::string_view name) {
  return Status(StatusCode::kCorrupt,
                "field \"" + std::string(name) + "\" is missing or has the wrong type");
}

Status read(const MetricsRecord& record, std::string_view name, uint64_t& out) {
  const auto count = record.find_count(name);
  if (!count.has_value()) return missing(name);
  out = *count;
  return {};
}

Status read(const MetricsRecord& record, std::string_view name, double& out) {
  const auto number = record.find_number(name);
  if (!number.has_value()) return missing(name);
  out = *number;
  return {};
}

}  // namespace

namespace {

// Rounded: to bytes, or to a thousandth.
void add_resources(const ResourceUse& use, MetricsRecord& out) {
  for (size_t i = 0; i < kRecordedResources; ++i) {
    const double value = use.values()[i];
    if (!(value >= 0 && value <= 1e18)) continue;  // not known
    if (kResourceFields[i].unit.starts_with("bytes"))
      out.add(kResourceFields[i].name, static_cast<uint64_t>(std::llround(value)));
    else
      out.add(kResourceFields[i].name, std::round(1000 * value) / 1000);
  }
}

ResourceUse resources_of(const MetricsRecord& record) {
  ResourceUse use;
  for (size_t i = 0; i < kRecordedResources; ++i)
    if (const auto value = record.find_number(kResourceFields[i].name)) use.values()[i] = *value;
  return use;
}

}  // namespace

MetricsRecord to_record(const TrainMetrics& record) {
  MetricsRecord out;
  out.add("step", record.step).add("epoch", record.epoch).add("loss", record.loss);
  for (const auto& [name, value] : record.metrics) out.add(name, value);
  out.add("lr", record.lr)
      .add("grad_norm", record.grad_norm)
      .add("samples_seen", record.samples_seen);
  if (record.maybe_skipped_steps) out.add("skipped_steps", *record.maybe_skipped_steps);
  if (record.maybe_loss_scale) out.add("loss_scale", *record.maybe_loss_scale);
  out.add("samples_per_second", record.samples_per_second)
      .add("step_time_ms", record.step_time_ms)
      .add("data_wait_ms", record.data_wait_ms);
  if (record.maybe_exchange_ms) out.add("exchange_ms", *record.maybe_exchange_ms);
  out.add("checkpoint_stall_ms", record.checkpoint_stall_ms).add("degraded", record.degraded);
  add_resources(record.resources, out);
  out.add("wall_time", std::string_view(record.wall_time));
  return out;
}

namespace {

std::vector<std::pair<std::string, double>> training_metrics(const MetricsRecord& record) {
  const auto& fields = record.fields();
  const auto find = [&fields](std::string_view name) {
    return std::ranges::find(fields, name, &std::pair<std::string, MetricsRecord::Value>::first);
  };
  std::vector<std::pair<std::string, double>> metrics;
  const auto end = find("lr");
  for (auto field = find("loss"); field < end && ++field < end;)
    if (const auto value = number_of(field->second)) metrics.emplace_back(field->first, *value);
  return metrics;
}

}  // namespace

Result<TrainMetrics> train_metrics_from(const MetricsRecord& record) {
  TrainMetrics out;
  STOKER_RETURN_IF_ERROR(read(record, "step", out.step));
  STOKER_RETURN_IF_ERROR(read(record, "epoch", out.epoch));
  STOKER_RETURN_IF_ERROR(read(record, "loss", out.loss));
  STOKER_RETURN_IF_ERROR(read(record, "lr", out.lr));
  STOKER_RETURN_IF_ERROR(read(record, "grad_norm", out.grad_norm));
  STOKER_RETURN_IF_ERROR(read(record, "samples_seen", out.samples_seen));
  STOKER_RETURN_IF_ERROR(read(record, "samples_per_second", out.samples_per_second));
  STOKER_RETURN_IF_ERROR(read(record, "step_time_ms", out.step_time_ms));
  STOKER_RETURN_IF_ERROR(read(record, "data_wait_ms", out.data_wait_ms));
  STOKER_RETURN_IF_ERROR(read(record, "checkpoint_stall_ms", out.checkpoint_stall_ms));
  out.metrics = training_metrics(record);
  out.maybe_skipped_steps = record.find_count("skipped_steps");
  out.maybe_loss_scale = record.find_number("loss_scale");
  out.maybe_exchange_ms = record.find_number("exchange_ms");
  out.resources = resources_of(record);
  // Missing in records of earlier releases.
  out.degraded = record.find_count("degraded").value_or(0);
  auto wall = record.find_text("wall_time");
  if (!wall.has_value()) return missing("wall_time");
  out.wall_time = *std::move(wall);
  return out;
}

namespace {

constexpr std::array<std::string_view, 7> kFixedFields{
    "step",     "dataset", "num_samples", "num_quarantined", "manifest_sha256", "duration_seconds",
    "wall_time"};

bool is_fixed_field(std::string_view name) {
  return std::find(kFixedFields.begin(), kFixedFields.end(), name) != kFixedFields.end() ||
         is_resource(name);
}

}  // namespace

MetricsRecord to_record(const EvalMetrics& record) {
  MetricsRecord out;
  out.add("step", record.step).add("dataset", std::string_view(record.dataset));
  for (const auto& [name, value] : record.metrics) {
    assert(!is_fixed_field(name) && "metric name conflicts with a fixed field");
    out.add(name, value);
  }
  out.add("num_samples", record.num_samples);
  if (record.num_quarantined > 0) out.add("num_quarantined", record.num_quarantined);
  out.add("manifest_sha256", std::string_view(record.manifest_sha256))
      .add("duration_seconds", record.duration_seconds);
  add_resources(record.resources, out);
  out.add("wall_time", std::string_view(record.wall_time));
  return out;
}

Result<EvalMetrics> eval_metrics_from(const MetricsRecord& record) {
  EvalMetrics out;
  const auto step = record.find_count("step");
  const auto dataset = record.find_text("dataset");
  const auto samples = record.find_count("num_samples");
  const auto manifest = record.find_text("manifest_sha256");
  const auto seconds = record.find_number("duration_seconds");
  const auto wall = record.find_text("wall_time");
  if (!step) return missing("step");
  if (!dataset) return missing("dataset");
  if (!samples) return missing("num_samples");
  if (!manifest) return missing("manifest_sha256");
  if (!seconds) return missing("duration_seconds");
  if (!wall) return missing("wall_time");
  out.step = *step;
  out.dataset = *dataset;
  out.num_samples = *samples;
  out.num_quarantined = record.find_count("num_quarantined").value_or(0);
  out.manifest_sha256 = *manifest;
  out.duration_seconds = *seconds;
  out.resources = resources_of(record);
  out.wall_time = *wall;
  for (const auto& [name, value] : record.fields()) {
    if (is_fixed_field(name)) continue;
    const auto number = record.find_number(name);
    if (!number.has_value()) return missing(name);
    out.metrics.emplace_back(name, *number);
  }
  return out;
}

}  // namespace stoker::metrics
