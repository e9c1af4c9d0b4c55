#include "daemon/train/numerics.h"

#include <stdlib.h>

#include <algorithm>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "shared/base/log.h"

namespace stoker::train {
namespace {

void set_tf32(bool on) {
  using at::Float32Backend;
  using at::Float32Op;
  const auto precision = on ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  // LibTorch's own default is TF32 in cuDNN: fp32 means fp32 here.
  for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN})
    at::globalContext().setFloat32Precision(Float32Backend::CUDA, op, precision);
}

// The switch is one of each thread, and a thread begins with that of the one that starts it: OpenMP
// starts the threads that compute for this one at its first large operation, which is yet to come.
void set_flush_denormals(bool on) {
  if (!at::globalContext().setFlushDenormal(on) && on)
    log_warn("denormal flushing unsupported", {{"reason", "not supported by this processor"}});
}

}  // namespace

void prepare_environment(const config::RunConfig& run) {
  // cuBLAS gives the same sums in each run only with a workspace of its own for each stream; what
  // the user has set stays.
  if (run.deterministic) (void)::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
}

void configure_numerics(const config::RunConfig& run, const config::TrainConfig& train) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  at::set_num_threads(train.num_threads.value_or(cores));
  at::globalContext().setDeterministicAlgorithms(run.deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(run.deterministic);
  // The shapes of a run do not change: it pays to try which kernel is fastest, but who wins may
  // differ from start to start.
  at::globalContext().setBenchmarkCuDNN(!run.deterministic);
  set_tf32(train.precision == config::Precision::kTf32);
  set_flush_denormals(train.flush_denormal);
}

}  // namespace stoker::train
