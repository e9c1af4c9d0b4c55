// preload_nvrtc(): loads NVRTC, CUDA's runtime compiler, before cuDNN needs it.
//
// cuDNN's attention kernels are compiled by NVRTC, which opens libnvrtc-builtins by its bare name.
// In packages of pip no search path leads there; Python's torch therefore loads it beforehand, too.
//
// Threads: any; the libraries stay loaded.
#pragma once

#include <string>

namespace stoker::cuda {

// Loads both libraries of CUDA `major` from the directory that holds CUDA's runtime library, or
// else the system's. Returns an empty text, or the reason why they are not loaded.
std::string preload_nvrtc(const std::string& directory, int major);

}  // namespace stoker::cuda
