// CpuProduct: the product of two F32 matrices on the CPU, by oneDNN where LibTorch has it.
//
// LibTorch multiplies F32 matrices by MKL, which on AMD's processors with AVX-512 uses half of it:
// oneDNN, which LibTorch uses for convolutions and as a compiled graph's linear layer, takes 0.46 of
// the time there (512 x 512 by 512 x 400, one core of an EPYC).
//
// Threads:  any; inside of at::parallel_for by that thread alone, elsewhere by all of LibTorch's.
// Errors:   LibTorch's exceptions pass through.
#pragma once

#include <ATen/core/Tensor.h>

namespace stoker::model {

// a · bᵀ, plus `bias` [columns] on each row where it is defined: [rows, inner] and [columns, inner],
// any strides, give [rows, columns]. Records no gradient: call it under NoGradGuard where one of them
// needs it.
at::Tensor cpu_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias = {});

// `b` as oneDNN likes it best, for many products with `a`s of so many rows; for cpu_matmul() alone.
at::Tensor pack_for_matmul(const at::Tensor& b, int64_t rows);

}  // namespace stoker::model
