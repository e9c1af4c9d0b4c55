// MemoryStore: a store for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/group/store.h"

namespace stoker::group {

class MemoryStore final : public Store {
 public:
  Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return lost();
    values_[key] = value;
    changed_.notify_all();
    return {};
  }
  Result<std::optional<std::string>> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return lost();
    const auto found = values_.find(key);
    return found == values_.end() ? std::optional<std::string>() : std::optional(found->second);
  }
  Result<std::string> set_if_absent(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return lost();
    changed_.notify_all();
    return values_.emplace(key, value).first->second;
  }
  Result<int64_t> add(const std::string& key, int64_t summand) override {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return lost();
    std::string& value = values_[key];
    const int64_t sum = (value.empty() ? 0 : std::stoll(value)) + summand;
    value = std::to_string(sum);
    changed_.notify_all();
    return sum;
  }
  Status wait(const std::string& key, Deadline deadline, const std::stop_token& stop) override {
    std::unique_lock lock(mutex_);
    const bool is_set = changed_.wait_until(lock, stop, deadline,
                                            [&] { return is_lost_ || values_.contains(key); });
    if (is_lost_) return lost();
    if (is_set) return {};
    if (stop.stop_requested()) return Status(StatusCode::kCancelled, "stopped");
    return Status(StatusCode::kTimedOut, key + " is not set");
  }

  // From now on every call fails, as if the process that serves the store had exited.
  void lose() {
    const std::lock_guard lock(mutex_);
    is_lost_ = true;
    changed_.notify_all();
  }

 private:
  static Status lost() { return Status(StatusCode::kPeerLost, "the store does not respond"); }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::string> values_;
  bool is_lost_ = false;
};

}  // namespace stoker::group
