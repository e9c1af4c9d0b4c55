// JsonValues: extracts named values from one JSON object without storing the rest of it.
//
// A name is a key or, for nested objects, keys joined with dots: "meta.score". A value is a string,
// a number, true or false (1 or 0), or an array of numbers that can contain nested arrays of
// numbers, or, for one name, an array of strings, which are joined by line ends, or messages: an array
// of objects with two strings, role and content (record/chat_messages.h). null counts as missing,
// and an empty array where it is not permitted.
//
// Threads: one object per thread.
// Errors:  read(): kCorrupt with the byte offset; the caller adds the location of the line. Causes:
//          not JSON, not an object, nesting deeper than 32 levels, a duplicate name, a named value
//          that is an object or an array of anything but numbers, nested lists whose length is not
//          `row`.
// Memory:  proportional to the named values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {

class JsonValues {
 public:
  // `row`: required length of each list nested in the first value; 0: any.
  // `maybe_texts`: index of the name whose value can be an array of strings.
  // `maybe_messages`: index of the name whose value must be messages.
  // `can_be_empty`: for each name whether an array can have no element; none if empty.
  explicit JsonValues(const std::vector<std::string>& names, uint64_t row = 0,
                      std::optional<size_t> maybe_texts = std::nullopt,
                      std::optional<size_t> maybe_messages = std::nullopt,
                      std::vector<bool> can_be_empty = {});
  ~JsonValues();
  JsonValues(const JsonValues&) = delete;
  JsonValues& operator=(const JsonValues&) = delete;

  // The values of one line, in the order of the names. They are valid until the next call.
  Status read(std::string_view line, std::span<record::FieldValue> values);

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace stoker::data::format
