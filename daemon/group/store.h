// Store: key-value store that all ranks of a group share. It carries start records, failure records
// and what accompanies a command, never gradients.
//
// Threads:  every method may be called from any thread; calls of one object wait for each other.
// Blocking: wait() until `deadline`, a stop wakes it; the others for one reply, a few seconds.
// Errors:   kPeerLost: the process that serves the store does not respond; then every later call
//           fails. wait(): kTimedOut, kCancelled.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "shared/base/deadline.h"
#include "shared/base/status.h"

namespace stoker::group {

class Store {
 public:
  virtual ~Store() = default;

  virtual Status set(const std::string& key, const std::string& value) = 0;
  // nullopt if the key is not set.
  virtual Result<std::optional<std::string>> get(const std::string& key) = 0;
  // Sets the key unless another rank has; returns its value after that.
  virtual Result<std::string> set_if_absent(const std::string& key, const std::string& value) = 0;
  // Adds to a number that starts at 0; returns the sum.
  virtual Result<int64_t> add(const std::string& key, int64_t summand) = 0;
  // Returns when the key is set.
  virtual Status wait(const std::string& key, Deadline deadline, const std::stop_token& stop) = 0;
};

}  // namespace stoker::group
