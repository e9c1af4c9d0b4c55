// STOKER_TARGET_CLONES: put before a function whose loops the compiler turns into vector code. The
// function is then compiled twice, for any x86-64 and for those with AVX2, and the dynamic loader
// takes the one that fits. Both compute the same, floats too: AVX2 by itself fuses no
// multiplication with an addition.
//
// STOKER_FUSED_VECTOR_CLONES: the same, but the one for newer processors fuses them, so that last
// bits of floats depend on the processor, as those of LibTorch's own loops do.
//
// Nothing under sanitizers, which are not ready when the loader asks; nothing elsewhere than on
// x86-64 with glibc.
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define STOKER_TARGET_CLONES __attribute__((target_clones("avx2", "default")))
#define STOKER_FUSED_VECTOR_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define STOKER_TARGET_CLONES
#define STOKER_FUSED_VECTOR_CLONES
#endif
