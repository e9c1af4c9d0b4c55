// JsonValues: takes named values out of one JSON object, without keeping the rest of it.
//
// A name is a key, or keys with dots between them for objects within objects: "meta.score". A value is
// a text, a number, true and false (1 and 0), or an array of numbers, in which arrays of numbers may
// stand; null is as if it were not there.
//
// Threads: one object a thread.
// Errors:  read(): kCorrupt (no JSON, no object, nested over 32 levels, a named value that is an object
//          or an array of other things, or has lists of another length than `row`; a name that is
//          there twice), saying at which byte; the caller adds where the line is. Memory is what the
//          named values take.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::format {

class JsonValues {
 public:
  // `row`: how many numbers each list within the first value has; 0: any.
  explicit JsonValues(const std::vector<std::string>& names, uint64_t row = 0);
  ~JsonValues();
  JsonValues(const JsonValues&) = delete;
  JsonValues& operator=(const JsonValues&) = delete;

  // The values of one line, in the order of the names. They hold until the next call.
  Status read(std::string_view line, std::span<record::FieldValue> values);

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace stoker::data::format
