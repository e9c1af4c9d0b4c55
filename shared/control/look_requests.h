// Requests to look inside training: what they ask for, and how it stands in a line.
//
// Threads: values and functions of their arguments.
// Errors:  kInvalidArgument: a field that is not known, is missing, or has a value that is not
//          allowed; says which.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <boost/json/fwd.hpp>

#include "shared/base/status.h"

namespace stoker::control {

// `profile`: the time of the next steps, by phase.
struct ProfileRequest {
  static constexpr uint64_t kMaxSteps = 1000;       // a step leaves about a dozen spans in memory
  static constexpr uint64_t kMaxKernelSteps = 100;  // with kernels: thousands

  uint64_t steps = 0;
  bool kernels = false;  // LibTorch's own profile as well

  Status validate() const;
};

// {"steps":20,"kernels":true}; `maybe_params` is null where the request has none.
Result<ProfileRequest> parse_profile(const boost::json::value* maybe_params);
// As a person types it, without the method's name: 20, or 20 kernels.
Result<ProfileRequest> parse_profile(std::span<const std::string_view> words);

}  // namespace stoker::control
