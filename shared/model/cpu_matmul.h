// cpu_matmul(): product of two F32 matrices on the CPU, computed by oneDNN if LibTorch provides it.
//
// LibTorch multiplies F32 matrices with MKL, which uses only half of AVX-512 on AMD processors.
// oneDNN, which LibTorch uses for convolutions and for linear layers of compiled graphs, takes 0.46
// of the time there (512 x 512 by 512 x 400, one core of an EPYC).
//
// Threads: callable from any thread. Inside at::parallel_for it runs on the calling thread only,
//          elsewhere on all LibTorch threads.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// a · bᵀ, plus `bias` [columns] on each row if it is defined. Inputs are [rows, inner] and
// [columns, inner] with any strides; the result is [rows, columns]. Records no gradient: call it
// under NoGradGuard if an operand requires one.
at::Tensor cpu_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

// `b` in oneDNN's preferred layout for repeated products with matrices `a` of `rows` rows. The
// result is valid only as an argument of cpu_matmul().
at::Tensor pack_for_matmul(const at::Tensor& b, int64_t rows);

}  // namespace stoker::model
