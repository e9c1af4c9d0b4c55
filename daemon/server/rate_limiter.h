// RateLimiter: limits the request rate of each user with one token bucket per user.
//
// Threads: one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>

#include "shared/base/clock.h"

namespace stoker::server {

class RateLimiter {
 public:
  // A bucket holds `per_s` tokens and is refilled with `per_s` tokens a second. `clock` must
  // outlive this object.
  RateLimiter(Clock& clock, double per_s) : clock_(clock), per_s_(per_s) {}

  // Takes one token of this user; false if there is none.
  bool try_acquire(uid_t uid);

 private:
  struct Bucket {
    double tokens = 0;
    std::chrono::nanoseconds at{0};
  };
  void remove_full_buckets();
  double tokens_now(const Bucket& bucket) const;

  Clock& clock_;
  const double per_s_;
  std::map<uid_t, Bucket> buckets_;
};

}  // namespace stoker::server
