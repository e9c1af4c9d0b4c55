// STOKER_TARGET_CLONES: attribute for functions with loops that the compiler vectorizes. The
// function is compiled for baseline x86-64 and for AVX2, and the dynamic loader selects the version
// for the CPU. Both compute identical results, including floats, because AVX2 alone has no fused
// multiply-add.
//
// STOKER_FUSED_VECTOR_CLONES: the same, but the version for newer CPUs uses fused multiply-add. The
// last bits of floats then depend on the CPU, as in LibTorch's own kernels.
//
// Both are empty with sanitizers, which are not initialized when the loader resolves the function,
// and on anything other than x86-64 with glibc.
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STOKER_TARGET_CLONES __attribute__((target_clones("avx2", "default")))
#define STOKER_FUSED_VECTOR_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define STOKER_TARGET_CLONES
#define STOKER_FUSED_VECTOR_CLONES
#endif
