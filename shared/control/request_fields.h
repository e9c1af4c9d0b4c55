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
  void take_number(std::string_view name, uint64_t least, uint64_t most, uint64_t* value);
  void take_flag(std::string_view name, bool* value);
  void take_text(std::string_view name, size_t most_bytes, std::string* value);
  void require(std::string_view name);

  // `how`: what it should have been, such as {"steps":20}.
  Status finish(std::string_view how) const;

 private:
  const boost::json::value* take(std::string_view name);
  void note(std::string mistake);

  const boost::json::object* maybe_fields_ = nullptr;
  std::set<std::string, std::less<>> taken_;
  std::string mistake_;
};

// A whole number as people type it; kInvalidArgument names it and its bounds.
Result<uint64_t> number_of_word(std::string_view name, std::string_view word, uint64_t least,
                                uint64_t most);

}  // namespace stoker::control
