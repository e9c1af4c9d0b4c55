// MetricsRecord: one line of a metrics file: names and values, in the order in which they were added.
//
// Threads: values.
// Format:  a JSON object on one line. Doubles in the shortest text that reads back as the same
//          double; NaN and the infinities, which JSON does not know, as null. docs/metrics.md lists
//          the fields of each file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/base/status.h"

namespace stoker::metrics {

class MetricsRecord {
 public:
  using Value = std::variant<std::nullptr_t, bool, uint64_t, int64_t, double, std::string>;

  MetricsRecord& add(std::string_view name, uint64_t value) { return add_value(name, value); }
  MetricsRecord& add(std::string_view name, double value) { return add_value(name, value); }
  MetricsRecord& add(std::string_view name, std::string_view value) {
    return add_value(name, std::string(value));
  }
  MetricsRecord& add_value(std::string_view name, Value value);

  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }
  const Value* find(std::string_view name) const;  // nullptr: no such field
  std::optional<uint64_t> find_count(
      std::string_view name) const;  // a whole number that is not negative
  // Any number; null reads as NaN, as it was written.
  std::optional<double> find_number(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;

  bool operator==(const MetricsRecord&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

std::string to_json(const MetricsRecord& record);  // without the newline
// Values that are lists or objects are not what we write: kCorrupt, as is anything that is not one
// JSON object.
Result<MetricsRecord> parse_record(std::string_view line);

}  // namespace stoker::metrics
