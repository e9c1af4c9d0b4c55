#include "shared/base/descriptor_limit.h"

#include <sys/resource.h>

#include <atomic>

namespace stoker {
namespace {

constexpr rlim_t kNotRaised = RLIM_INFINITY;
std::atomic<rlim_t> former_soft_limit{kNotRaised};

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  const rlim_t former = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) former_soft_limit = former;
}

void restore_descriptor_limit(pid_t child) {
  const rlim_t former = former_soft_limit;
  rlimit limit{};
  if (former == kNotRaised || ::prlimit(child, RLIMIT_NOFILE, nullptr, &limit) != 0) return;
  limit.rlim_cur = former;
  (void)::prlimit(child, RLIMIT_NOFILE, &limit, nullptr);
}

}  // namespace stoker
