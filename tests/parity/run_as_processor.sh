#!/bin/sh
# run_as_processor.sh CAPABILITY BRANCH PROGRAM…: runs the tests of these programs that compare with
# golden files or PyTorch's bytes (all but those in double precision) with the kernels that LibTorch
# and MKL select on other processors. CAPABILITY: default (SSE2) or avx2, see ATEN_CPU_CAPABILITY.
# BRANCH: a value of MKL_CBWR such as COMPATIBLE; AUTO: MKL selects. Always uses two threads. Exit
# code 77: this processor has no AVX2.
set -eu
capability=$1 branch=$2
shift 2
# LibTorch does not check whether the processor supports the requested capability.
if [ "$capability" = avx2 ] && ! grep -qw avx2 /proc/cpuinfo; then
  echo "skipped: this processor has no AVX2"
  exit 77
fi
export ATEN_CPU_CAPABILITY="$capability" OMP_NUM_THREADS=2
if [ "$branch" = AUTO ]; then unset MKL_CBWR; else export MKL_CBWR="$branch"; fi
status=0
for program in "$@"; do
  "$program" --gtest_brief=1 --gtest_filter='*ParityTest.*:TruncatedNormalTest.*-*DoublePrecision*' || status=1
done
exit $status
