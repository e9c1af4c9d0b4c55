#!/bin/sh
# run_as_processor.sh PROCESSOR THREADS PROGRAM…: runs the tests of these programs that compare with
# golden files or PyTorch's bytes (all but those in double precision) with the kernels that LibTorch,
# oneDNN and MKL select on a processor with PROCESSOR: sse (none of the following), avx2 or avx512.
# Exit code 77: this processor lacks its instructions.
set -eu
processor=$1
export OMP_NUM_THREADS="$2"
shift 2
# LibTorch does not check whether the processor supports the requested capability.
case $processor in
  sse) needs="" ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE ;;
  avx2) needs=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 ;;
  avx512) needs=avx512f ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE MKL_CBWR=AVX512 ;;
  *) echo "unknown processor $processor: sse, avx2 or avx512" && exit 64 ;;
esac
export ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA MKL_CBWR
if [ -n "$needs" ] && ! grep -qw "$needs" /proc/cpuinfo; then
  echo "skipped: this processor has no $needs"
  exit 77
fi
status=0
for program in "$@"; do
  # With a filter that matches nothing, or skipped tests only, a program passes.
  result=$(mktemp)
  "$program" --gtest_brief=1 --gtest_filter='*ParityTest.*:TruncatedNormalTest.*-*DoublePrecision*' --gtest_output="json:$result" ||
    status=1
  if ! grep -q '"result": "COMPLETED"' "$result"; then
    echo "$program: ran no test"
    status=1
  fi
  rm -f "$result"
done
exit $status
