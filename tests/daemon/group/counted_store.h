// CountedStore: counts the requests to another store.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/store.h"

namespace stoker::group {

class CountedStore : public Store {
 public:
  explicit CountedStore(Store& store) : store_(store) {}

  Status set(const std::string& key, const std::string& value) override {
    ++requests_;
    return store_.set(key, value);
  }
  Result<std::optional<std::string>> get(const std::string& key) override {
    ++requests_;
    return store_.get(key);
  }
  Result<std::string> set_if_absent(const std::string& key, const std::string& value) override {
    ++requests_;
    return store_.set_if_absent(key, value);
  }
  Result<int64_t> add(const std::string& key, int64_t summand) override {
    ++requests_;
    return store_.add(key, summand);
  }
  Status wait(const std::string& key, Deadline deadline, const std::stop_token& stop) override {
    ++requests_;
    return store_.wait(key, deadline, stop);
  }
  int requests() const { return requests_; }

 protected:
  int requests_ = 0;

 private:
  Store& store_;
};

}  // namespace stoker::group
