// Autocast: while it lives, forward passes of this thread compute in a shorter format where
// LibTorch's autocast rules say it pays; as Python's torch.autocast.
//
// Threads: the thread that makes it, which also ends it.
#pragma once

#include <optional>

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace stoker::model {

class Autocast {
 public:
  // Nothing where `maybe_dtype` is empty.
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
