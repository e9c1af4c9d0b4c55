// Requests to look inside training: what they ask for, and how it stands in a line.
//
// Threads: values and functions of their arguments.
// Errors:  kInvalidArgument: a field that is not known, is missing, or has a value that is not
//          allowed; says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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

// `inspect_open`: statistics of tensors whose names match, at steps that are multiples of `every`.
struct InspectionRequest {
  static constexpr size_t kMaxGlobBytes = 256;
  static constexpr uint64_t kMaxEvery = 1'000'000'000;
  static constexpr size_t kMaxTensors = 256;    // that one tap looks at
  static constexpr size_t kMaxHistograms = 64;  // the same with histograms

  std::string glob;
  bool parameters = true;
  bool gradients = true;
  bool outputs = true;  // of modules
  uint64_t every = 1;
  uint64_t steps = 0;  // so many rows, then it ends; 0: until nobody reads it
  bool histogram = false;
};

// `inspect_read` and `inspect_close`: which inspection; of the first, after which row.
struct InspectionId {
  uint64_t inspection = 0;
  uint64_t after = 0;
};

Result<InspectionRequest> parse_inspect(const boost::json::value* maybe_params);
Result<InspectionRequest> parse_inspect(std::span<const std::string_view> words);  // GLOB [EVERY]
Result<InspectionId> parse_inspect_read(const boost::json::value* maybe_params);
Result<InspectionId> parse_inspect_read(std::span<const std::string_view> words);  // TAP [AFTER]
Result<InspectionId> parse_inspect_close(const boost::json::value* maybe_params);
Result<InspectionId> parse_inspect_close(std::span<const std::string_view> words);  // TAP

}  // namespace stoker::control
