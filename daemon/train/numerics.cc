#include "daemon/train/numerics.h"

#include <stdlib.h>

#include <algorithm>

#include <ATen/Context.h>

#include "shared/base/cgroup.h"
#include "shared/base/log.h"
#include "shared/model/torch_threads.h"

namespace stoker::train {
namespace {

void set_tf32(bool on) {
  using at::Float32Backend;
  using at::Float32Op;
  const auto precision = on ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
  // Parts of LibTorch, such as TunableOp, read the former settings, which throws if they differ.
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
  // LibTorch enables TF32 in cuDNN by default; here fp32 means IEEE fp32.
  for (const Float32Op op : {Float32Op::MATMUL, Float32Op::CONV, Float32Op::RNN})
    at::globalContext().setFloat32Precision(Float32Backend::CUDA, op, precision);
}

// The mode is per thread, and a new thread inherits it from its creator.
void set_flush_denormals(bool on) {
  if (!at::globalContext().setFlushDenormal(on) && on)
    log_warn("denormal flushing unsupported", {{"reason", "not supported by this processor"}});
}

}  // namespace

void prepare_environment(const config::RunConfig& run) {
  // cuBLAS results are reproducible only with a separate workspace for each stream. A value set by
  // the user is not overwritten.
  if (run.deterministic) (void)::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
}

Status configure_numerics(const config::RunConfig& run, const config::TrainConfig& train) {
  set_flush_denormals(train.flush_denormal);
  STOKER_RETURN_IF_ERROR(
      model::start_threads(train.num_threads ? *train.num_threads : num_usable_cores()));
  at::globalContext().setDeterministicAlgorithms(run.deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(run.deterministic);
  // Filling each new tensor with NaN costs bandwidth, and no kernel here reads uninitialized memory.
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  // The shapes of a run are fixed, so cuDNN benchmarking pays off. The kernel it selects can differ
  // between starts.
  at::globalContext().setBenchmarkCuDNN(!run.deterministic);
  set_tf32(train.precision == config::Precision::kTf32);
  return {};
}

}  // namespace stoker::train
