#!/usr/bin/env bash
# gpu_check_test.sh ROOT: tests scripts/gpu_check.sh without a GPU, and bench/gpu_check.py with fake programs and a fake GPU.
set -euo pipefail
root=${1:?give the root of the repository}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'gpu_check_test: %s\n' "$*" >&2
  exit 1
}
make_program() {
  mkdir -p "${1%/*}"
  cat >"$1"
  chmod +x "$1"
}

make_program "$scratch/no-gpu/nvidia-smi" <<'SH'
#!/usr/bin/env bash
exit 9
SH
output=$(PATH=$scratch/no-gpu:$PATH "$root/scripts/gpu_check.sh" "$scratch/none" 2>&1) && code=0 || code=$?
[[ $code == 77 ]] || fail "without a GPU it exited with $code"
[[ $(wc -l <<<"$output") == 1 && $output == *"no NVIDIA GPU"* ]] || fail "without a GPU it printed: $output"
[[ ! -e $scratch/none ]] || fail "without a GPU it left files"

# A GPU that uses 100 W when it is idle and 700 W when it is busy.
make_program "$scratch/gpu/nvidia-smi" <<'SH'
#!/usr/bin/env bash
if [[ $* == *-lms* ]]; then
  while printf '100.00, 4, 0\n700.00, 20000, 99\n'; do sleep 0.1; done
else
  echo 'NVIDIA H100 80GB HBM3, 81559 MiB, 580.0'
fi
SH
make_program "$scratch/bin/cuda_test" <<'SH'
#!/usr/bin/env bash
echo '[  PASSED  ] 6 tests.'
SH
make_program "$scratch/bin/stokerd" <<'SH'
#!/usr/bin/env bash
echo 'CUDA      yes, with fused kernels'
SH
# Ends when nvidia-smi has printed. With fused kernels it is faster.
make_program "$scratch/bin/stoker-bench-device" <<'SH'
#!/usr/bin/env bash
[[ $1 != --list ]] || { echo 'device-gpt2      {"model":"gpt2","units":16384,"unit":"tokens"}' && exit; }
sleep 1
printf '{"bench":"%s","metric":"gpt2 of 163000000 parameters, 39000000 of them embeddings","unit":"tokens/s","value":%d,"spread":[499000,501000]}\n' "$2" \
  $((500000 + ${STOKER_BENCH_FUSED_KERNELS:-0} * 100000))
SH
check() {  # FOLDER OPTION…: sets `output` and `code`
  output=$(PATH=$scratch/gpu:$PATH python3 "$root/bench/gpu_check.py" --bin "$scratch/bin" --tests "$scratch/bin" --bench-bin "$scratch/bin" \
    --config "$root/config" "$@" 2>&1) && code=0 || code=$?
}

check "$scratch/out" tests gpt2
[[ $code == 0 ]] || fail "exit $code: $output"
[[ $output == *'gpt2 eager: skipped'* ]] || fail "a Python without a GPU was measured: $output"
for text in '### NVIDIA H100 80GB HBM3' '| cuda_test | passed |' '500,000 tokens/s (MFU 37.6%)' '| 700 W |' '| fused kernels | passed |' \
  ': 600,000 tokens/s, 1.20 x without.'; do
  grep -qF -- "$text" "$scratch/out/page.md" || fail "the page lacks '$text': $(cat "$scratch/out/page.md")"
done

# What has passed is not repeated.
lines=$(grep -c '"passed"' "$scratch/out/results.jsonl")
check "$scratch/out" tests gpt2
[[ $(grep -c '"passed"' "$scratch/out/results.jsonl") == "$lines" ]] || fail "checks that have passed were repeated: $output"

# The tables replace those of a document, and nothing else.
printf 'before\n<!-- measured: gpu_page.py -->\nold\n<!-- end of measured -->\nafter\n' >"$scratch/page.md"
python3 "$root/bench/gpu_page.py" "$scratch/out/results.jsonl" "$scratch/page.md"
[[ $(head -n 1 "$scratch/page.md") == before && $(tail -n 1 "$scratch/page.md") == after ]] || fail "the document is $(cat "$scratch/page.md")"
grep -qF 'MFU 37.6%' "$scratch/page.md" || fail "the document is $(cat "$scratch/page.md")"
! grep -q '^old$' "$scratch/page.md" || fail "the document is $(cat "$scratch/page.md")"

# Without time it does nothing, and says that there is more to do.
check "$scratch/late" --limit 0 tests
[[ $code == 75 && $output == *'cuda_test: no time left'*'Not complete'* ]] || fail "without time: exit $code, $output"

# A program that does not end is killed, with its children.
make_program "$scratch/bin/cuda_test" <<SH
#!/usr/bin/env bash
sleep 1000 &
echo \$! >"$scratch/child"
wait
SH
check "$scratch/late" --shorten 300 tests
[[ $code == 1 && $output == *'cuda_test: out of time'* ]] || fail "a program that does not end: exit $code, $output"
child=$(cat "$scratch/child")
[[ ! -e /proc/$child || $(cut -d ' ' -f 3 "/proc/$child/stat") == Z ]] || fail "a child of a killed program runs"

# The next call repeats the check. Tests that skip themselves do not pass where there is a GPU.
make_program "$scratch/bin/cuda_test" <<'SH'
#!/usr/bin/env bash
echo 'cuda_test.cc:1: Skipped'
echo 'no CUDA device available (driver missing, or no device visible)'
echo '[  PASSED  ] 0 tests.'
SH
check "$scratch/late" tests
[[ $code == 1 && $output == *'no test ran: no CUDA device available'* ]] || fail "skipped tests count as passed: $output"

make_program "$scratch/bin/cuda_test" <<'SH'
#!/usr/bin/env bash
echo '[  FAILED  ] CudaTest.Something'
exit 1
SH
check "$scratch/failed" tests
[[ $code == 1 && $output == *'CudaTest.Something'* ]] || fail "a failed test is not reported: $output"
check "$scratch/failed" tests
[[ $code == 0 && $output != *'cuda_test: failed'* ]] || fail "a failed check is repeated without --retry: exit $code, $output"
check "$scratch/failed" --retry tests
[[ $code == 1 && $output == *'cuda_test: failed'* ]] || fail "--retry does not repeat a failed check: exit $code, $output"

check "$scratch/unknown" nothing
[[ $code == 64 && $output == *'unknown part nothing'* ]] || fail "an unknown part: exit $code, $output"
