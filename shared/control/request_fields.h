// RequestFields: the parameters of a request, taken one by one; what nobody took is not known.
//
// Threads: one object per thread.
// Errors:  the first mistake is kept for finish(); after it nothing is taken.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "shared/base/status.h"

namespace stoker::control {

class RequestFields {
 public:
  // `maybe_params` must outlive this object; null is an empty object.
  explicit RequestFields(const boost::json::value* maybe_params);

  // Each leaves *value as it is where the field is not there.
  void read_number(std::string_view name, uint64_t min, uint64_t max, uint64_t* value);
  void read_bool(std::string_view name, bool* value);
  void read_text(std::string_view name, size_t max_bytes, std::string* value);
  void require(std::string_view name);

  // `how`: what it should have been, such as {"steps":20}.
  Status finish(std::string_view how) const;

 private:
  const boost::json::value* find_field(std::string_view name);
  void add_error(std::string message);

  const boost::json::object* maybe_fields_ = nullptr;
  std::set<std::string, std::less<>> used_;
  std::string error_;
};

// A whole number as people type it; kInvalidArgument names it and its bounds.
Result<uint64_t> parse_number(std::string_view name, std::string_view word, uint64_t min,
                              uint64_t max);

}  // namespace stoker::control
