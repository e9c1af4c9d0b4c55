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
  // A bucket holds `burst` tokens and is refilled with `per_s` tokens a second. `clock` must outlive
  // this object.
  RateLimiter(Clock& clock, double per_s, double burst)
      : clock_(clock), per_s_(per_s), burst_(burst) {}
  RateLimiter(Clock& clock, double per_s) : RateLimiter(clock, per_s, per_s) {}

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
  const double burst_;
  std::map<uid_t, Bucket> buckets_;
};

}  // namespace stoker::server
