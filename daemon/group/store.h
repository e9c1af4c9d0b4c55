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
#include <utility>

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

// PrefixedStore: the keys of a store that begin with `prefix`.
//
// Threads, Blocking, Errors: see Store. Owner: the store must outlive this object.
class PrefixedStore final : public Store {
 public:
  PrefixedStore(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  Status set(const std::string& key, const std::string& value) override {
    return store_.set(prefix_ + key, value);
  }
  Result<std::optional<std::string>> get(const std::string& key) override {
    return store_.get(prefix_ + key);
  }
  Result<std::string> set_if_absent(const std::string& key, const std::string& value) override {
    return store_.set_if_absent(prefix_ + key, value);
  }
  Result<int64_t> add(const std::string& key, int64_t summand) override {
    return store_.add(prefix_ + key, summand);
  }
  Status wait(const std::string& key, std::chrono::steady_clock::time_point deadline,
              const std::stop_token& stop) override {
    return store_.wait(prefix_ + key, deadline, stop);
  }
  const std::string& prefix() const { return prefix_; }

 private:
  Store& store_;
  const std::string prefix_;
};

}  // namespace stoker::group
