// KernelProfile: records LibTorch's own profile (Kineto) between start() and stop(): each operator,
// and on a GPU each kernel.
//
// Threads: start(), stop() and mark() on the trainer thread; the result of stop() on any thread.
// Errors:  kInternal with LibTorch's message: there is no profiler, or one is already running.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include "shared/base/status.h"

namespace stoker::train {

class KernelProfile {
 public:
  explicit KernelProfile(c10::Device device) : device_(device) {}
  ~KernelProfile();
  KernelProfile(const KernelProfile&) = delete;
  KernelProfile& operator=(const KernelProfile&) = delete;

  Status start();
  // Starts a span of this name in the profile, until unmark(). Does not copy `name`.
  void mark(const char* name);
  void unmark() noexcept { mark_.reset(); }
  // Writes the profile as a Chrome trace to `path`, which must not exist.
  using Save = std::function<Status(const std::string& path)>;
  Result<Save> stop();

 private:
  const c10::Device device_;
  bool running_ = false;
  std::optional<at::RecordFunction> mark_;
};

}  // namespace stoker::train
