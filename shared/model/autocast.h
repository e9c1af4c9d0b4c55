// Autocast: RAII guard that enables autocast on the current thread, as torch.autocast in Python.
// Forward passes then run in a lower-precision dtype for the operators in LibTorch's autocast list.
//
// Threads: constructed and destroyed on the same thread.
#pragma once

#include <optional>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace stoker::model {

class Autocast {
 public:
  // No effect if `maybe_dtype` is empty.
  Autocast(std::optional<c10::ScalarType> maybe_dtype, c10::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const bool on_;
  const c10::DeviceType device_;
  bool was_enabled_ = false;
  c10::ScalarType was_dtype_ = c10::ScalarType::Float;
};

}  // namespace stoker::model
