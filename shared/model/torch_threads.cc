#include "shared/model/torch_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "shared/base/exception_status.h"

namespace stoker::model {
namespace {

// Elements above which an operation uses all threads (at::internal::GRAIN_SIZE).
constexpr int64_t kParallelElements = 2 * 32768;

}  // namespace

Status start_threads(int num_threads) {
  // Next to the thread that calls it: those of OpenMP, and those of pthreadpool.
  STOKER_RETURN_IF_ERROR(check_thread_limit(2 * static_cast<size_t>(num_threads - 1)));
  at::set_num_threads(num_threads);
  // An operation of LibTorch: at::parallel_for() of code that is compiled without OpenMP, as this is, is a loop.
  (void)at::full({kParallelElements}, 1, at::kByte);
  return {};
}

}  // namespace stoker::model
