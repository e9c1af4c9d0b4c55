#include "evaluator/memory_limit.h"

#include <sys/resource.h>

#include <cerrno>

namespace stoker::evaluator {

Status limit_memory(std::optional<int64_t> mib) {
  if (!mib) return {};
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  const rlim_t requested = static_cast<rlim_t>(*mib) << 20;
  if (limit.rlim_max != RLIM_INFINITY && requested > limit.rlim_max)
    return Status(StatusCode::kInvalidArgument, "eval.memory_limit_mib is " + std::to_string(*mib) +
                                                    ", but the hard limit of this process is " +
                                                    std::to_string(limit.rlim_max >> 20));
  limit.rlim_cur = requested;
  if (::setrlimit(RLIMIT_DATA, &limit) != 0)
    return Status::from_errno(errno, "eval.memory_limit_mib");
  return {};
}

}  // namespace stoker::evaluator
