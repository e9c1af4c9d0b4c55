// KernelProfile: LibTorch's own profile (Kineto) of what runs between its start and its end: each
// operator, and on a GPU each kernel.
//
// Threads: start(), stop() and mark() on the trainer's thread; what stop() returns on any.
// Errors:  kInternal, with LibTorch's text: it has no profiler, or one is running.
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
  // A span of the profile, named so, until unmark(). `name` is kept by pointer.
  void mark(const char* name);
  void unmark() noexcept { mark_.reset(); }
  // Writes the profile as a Chrome trace to a path that is not there yet.
  using Save = std::function<Status(const std::string& path)>;
  Result<Save> stop();

 private:
  const c10::Device device_;
  bool running_ = false;
  std::optional<at::RecordFunction> mark_;
};

}  // namespace stoker::train
