#include "daemon/server/rate_limiter.h"

#include <algorithm>

namespace stoker::server {

namespace {
// Above this number, full buckets are deleted because they are equal to new ones.
constexpr size_t kMaxBuckets = 256;
}  // namespace

double RateLimiter::tokens_now(const Bucket& bucket) const {
  const double passed = seconds_between(bucket.at, clock_.monotonic());
  return std::min(burst_, bucket.tokens + passed * per_s_);
}

bool RateLimiter::try_acquire(uid_t uid) {
  const auto now = clock_.monotonic();
  auto at = buckets_.find(uid);
  if (at == buckets_.end()) {
    if (buckets_.size() >= kMaxBuckets) remove_full_buckets();
    at = buckets_.emplace(uid, Bucket{.tokens = burst_, .at = now}).first;
  }
  Bucket& bucket = at->second;
  bucket = Bucket{.tokens = tokens_now(bucket), .at = now};
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

void RateLimiter::remove_full_buckets() {
  std::erase_if(buckets_, [this](const auto& entry) { return tokens_now(entry.second) >= burst_; });
}

}  // namespace stoker::server
