#!/usr/bin/env bash
# gpu_check_test.sh ROOT: tests scripts/gpu_check.sh without a GPU and with a fake one.
set -euo pipefail
root=${1:?give the root of the repository}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'gpu_check_test: %s\n' "$*" >&2
  exit 1
}

# A separate tree with fake programs.
tree=$scratch/gpu-check
mkdir -p "$tree/bench" "$scratch/bin" "$scratch/no-gpu"
cp "$root/scripts/gpu_check.sh" "$tree"
cp "$root/bench/device_table.py" "$tree/bench"
make_program() {
  cat >"$1"
  chmod +x "$1"
}
make_program "$tree/cuda_test" <<'SH'
#!/usr/bin/env bash
echo '[  PASSED  ] 6 tests.'
SH
make_program "$tree/stoker-bench-device" <<'SH'
#!/usr/bin/env bash
printf '{"bench":"%s","metric":"%s of 163000000 parameters, 39000000 of them embeddings","unit":"tokens/s","value":500000,"baseline":"eager PyTorch","baseline_value":250000,"ratio":2}\n' "$2" "$2"
SH
make_program "$scratch/no-gpu/nvidia-smi" <<'SH'
#!/usr/bin/env bash
exit 9
SH
make_program "$scratch/bin/nvidia-smi" <<'SH'
#!/usr/bin/env bash
echo 'NVIDIA H100 80GB HBM3, 81559 MiB, 580.0'
SH

output=$(PATH=$scratch/no-gpu:$PATH "$tree/gpu_check.sh" "$scratch/none" 2>&1) && code=0 || code=$?
[[ $code == 77 ]] || fail "without a GPU it exited with $code"
[[ $(wc -l <<<"$output") == 1 && $output == *"no NVIDIA GPU"* ]] || fail "without a GPU it printed: $output"
[[ ! -e $scratch/none ]] || fail "without a GPU it left files"

output=$(PATH=$scratch/bin:$PATH STOKER_PYTHON=python3 "$tree/gpu_check.sh" "$scratch/out" 2>&1) || fail "with a GPU: $output"
grep -qF 'GPU: NVIDIA H100' "$scratch/out/table.md" || fail "the table does not contain the GPU"
grep -qF '| device-gpt2 of 163000000 parameters, 39000000 of them embeddings | 500,000 tokens/s (MFU 37.6%) | eager PyTorch: 250,000 | 2.00 |' \
  "$scratch/out/table.md" || fail "the table is $(cat "$scratch/out/table.md")"

make_program "$tree/cuda_test" <<'SH'
#!/usr/bin/env bash
echo 'Skipped: no CUDA device available (driver missing, or no device visible)'
echo '[  PASSED  ] 0 tests.'
SH
output=$(PATH=$scratch/bin:$PATH "$tree/gpu_check.sh" "$scratch/skipped" 2>&1) && fail "skipped tests count as passed"
[[ $output == *'no test ran: Skipped: no CUDA device available'* ]] || fail "skipped tests are not reported: $output"

make_program "$tree/cuda_test" <<'SH'
#!/usr/bin/env bash
echo '[  FAILED  ] CudaTest.Something'
exit 1
SH
output=$(PATH=$scratch/bin:$PATH "$tree/gpu_check.sh" "$scratch/failed" 2>&1) && fail "a failed test is ignored"
[[ $output == *'CudaTest.Something'* ]] || fail "a failed test is not reported: $output"
