// What the libraries of NVIDIA that LibTorch calls have in common in a dry run.
#pragma once

#include <cuda_runtime_api.h>

namespace stoker::cuda {

// A kernel of a library on a stream. False: the stream is invalid, or its capture.
bool submit_to_library(cudaStream_t stream);

}  // namespace stoker::cuda
