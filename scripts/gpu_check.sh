#!/usr/bin/env bash
# Runs all GPU tests, then benchmarks against PyTorch, and prints a table. Takes at most eight
# minutes.
set -euo pipefail

readonly no_gpu=77
readonly test_seconds=130 all_seconds=470
readonly -A bench_seconds=([mlp]=60 [gpt2]=170 [resnet50]=110)  # two compilations of the peer take most of it

usage() {
  cat <<'HELP'
Usage: gpu_check.sh [FOLDER]

Runs the tests that need a GPU, then compares training steps on it with eager PyTorch and torch.compile, and prints a
Markdown table; the results are stored in FOLDER (default: ./gpu-check). Takes at most eight minutes; downloads nothing.

From a checkout (scripts/gpu_check.sh, after scripts/build.sh release) or from an installed tree
(libexec/stoker/gpu-check/gpu_check.sh, after bin/stoker-libtorch). STOKER_PYTHON: a Python with torch 2.11 for the
comparison (default: python3). Exit code 77 without a GPU.
HELP
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then usage && exit 0; fi
if (($# > 1)); then usage >&2 && exit 64; fi

gpu=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -n 1) || gpu=''
if [[ -z $gpu ]]; then
  echo "gpu_check: no NVIDIA GPU found (nvidia-smi lists none); nothing was checked"
  exit "$no_gpu"
fi

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
if [[ -x $here/cuda_test ]]; then
  tests=$here bench=$here scripts=$here/bench
elif [[ -x $here/../../../bin/stokerd ]]; then
  echo "gpu_check: the tests were not built when this was installed: scripts/build.sh release, then install again" >&2
  exit 78
else
  tests=$here/../build/release/tests bench=$here/../build/release/bin scripts=$here/../bench
  [[ -x $tests/cuda_test && -x $bench/stoker-bench-device ]] || {
    echo "gpu_check: build first: scripts/build.sh release cuda_test stoker-bench-device stoker_cuda" >&2
    exit 78
  }
fi
python=${STOKER_PYTHON:-python3}
out=${1:-gpu-check}
mkdir -p "$out"
: >"$out/lines.jsonl"
deadline=$((SECONDS + all_seconds))
status=0

# within SECONDS COMMAND…: limits the command to SECONDS and to the remaining total time.
within() {
  local remaining=$((deadline - SECONDS)) max_seconds=$1
  shift
  if ((remaining < 5)); then return 124; fi
  timeout --kill-after=5 "$((remaining < max_seconds ? remaining : max_seconds))" "$@"
}

echo "GPU: $gpu"
if within "$test_seconds" "$tests/cuda_test" --gtest_color=no >"$out/tests.log" 2>&1; then
  tail -n 2 "$out/tests.log"
  if grep -q '^\[  PASSED  \] 0 tests' "$out/tests.log"; then
    status=1
    echo "no test ran: $(grep -m 1 -iE 'cuda|driver|device' "$out/tests.log" || echo "see $out/tests.log")"
  fi
else
  status=1
  grep -E '^\[ +FAILED|Failure|what\(\)' "$out/tests.log" || tail -n 5 "$out/tests.log"
fi

if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  export STOKER_PYTHON=$python
else
  unset STOKER_PYTHON
  echo "no comparison: $python has no PyTorch with access to the GPU (set STOKER_PYTHON)"
fi
export STOKER_BENCH_FOLDER=$scripts
for model in mlp gpt2 resnet50; do
  within "${bench_seconds[$model]}" "$bench/stoker-bench-device" --only "device-$model" --runs 3 --seconds 3 \
    >>"$out/lines.jsonl" 2>>"$out/bench.log" || {
    status=1
    echo "device-$model failed; see $out/bench.log"
  }
done

{
  printf 'GPU: %s\n\n' "$gpu"
  "$python" "$scripts/device_table.py" "$out/lines.jsonl" "$gpu"
} | tee "$out/table.md"
exit "$status"
