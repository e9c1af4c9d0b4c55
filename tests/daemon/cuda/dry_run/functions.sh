#!/usr/bin/env bash
# functions.sh LIBRARY…: a C++ file with the functions of NVIDIA's libraries that these libraries of LibTorch use,
# which end the program with their name. The dry run replaces those that it has.
set -euo pipefail
cat <<'CODE'
#include <cstdio>
#include <cstdlib>
#define FUNCTION(name)                                               \
  extern "C" __attribute__((weak)) void name() {                     \
    std::fputs("dry run: " #name "() is not implemented\n", stderr); \
    std::abort();                                                    \
  }
CODE
nm -D --undefined-only "$@" |
  sed -nE 's/^ *U ((_*cuda|cublas|cudnn|cufft|curand|cusparse|cusolver|nccl|nvshmem|cuFile)[A-Za-z0-9_]*).*/FUNCTION(\1)/p' | sort -u
