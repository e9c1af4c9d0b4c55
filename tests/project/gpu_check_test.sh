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

# A torch for another CUDA, or for none, is rejected before anything starts.
tree=$scratch/tree
mkdir -p "$tree/libexec/stoker/gpu-check" "$tree/share/stoker/libtorch" "$scratch/torch/torch"
cp "$root/scripts/gpu_check.sh" "$tree/libexec/stoker/gpu-check/"
cp /bin/true "$tree/libexec/stoker/gpu-check/cuda_test"
echo 2.11.0 >"$tree/share/stoker/libtorch/libtorch-version"
touch "$scratch/torch/torch/__init__.py"
make_program "$scratch/gpu-only/nvidia-smi" <<'SH'
#!/usr/bin/env bash
echo 'GPU 0: NVIDIA H100'
SH
check_torch() {  # VERSION CUDA
  printf "__version__ = '%s'\ncuda: Optional[str] = %s\n" "$1" "$2" >"$scratch/torch/torch/version.py"
  output=$(PATH=$scratch/gpu-only:$PATH PYTHONPATH=$scratch/torch STOKER_PYTHON=python3 "$tree/libexec/stoker/gpu-check/gpu_check.sh" "$scratch/none" 2>&1) &&
    code=0 || code=$?
}
for version in "2.11.0+cpu None" "2.11.0+cu126 '12.6'" "2.10.0+cu130 '13.0'"; do
  check_torch "${version% *}" "${version#* }"
  [[ $code == 78 && $output == *"is version ${version% *}"*'; stoker was built with 2.11.0 for CUDA 13' ]] || fail "torch ${version% *}: exit $code, $output"
done
# The right one is used, and what the machine finds through LD_LIBRARY_PATH, such as its driver, is still found.
mkdir "$tree/libexec/stoker/gpu-check/bench"
echo 'import os; print(os.environ["LD_LIBRARY_PATH"])' >"$tree/libexec/stoker/gpu-check/bench/gpu_check.py"
LD_LIBRARY_PATH=/driver check_torch 2.11.0+cu130 "'13.0'"
[[ $output == "$scratch/torch/torch/lib:/driver" ]] || fail "the right torch is rejected, or libraries of the machine are not found: $output"

# Each part ends within a call, a call of 170 seconds begins any check, which half of its limit must be left for, and one of 570 seconds
# begins all checks of the first one if each needs half of its limit. What is computed from the trace of a profile.
PYTHONPATH=$root/bench python3 - <<'PYTHON' || fail "bench/gpu_check.py"
import sys
sys.dont_write_bytecode = True
import gpu_check, gpu_page
for part, checks in gpu_check.PARTS.items():
    limits = [most for _, most, _ in checks]
    assert sum(limits) < gpu_check.LIMIT and max(limits) / 2 < 170, f"{part}: {limits}"
first_call = [most for part in ("start", "tests", "resume", "memory", "gpt2") for _, most, _ in gpu_check.PARTS[part]]
assert sum(first_call) / 2 < 570, sum(first_call)
events = [{"cat": "kernel", "name": name, "ts": start, "dur": us} for name, start, us in (("a", 10, 30), ("b", 30, 20), ("a", 60, 30))]
events += [{"cat": "gpu_memcpy", "name": "copy", "ts": 50, "dur": 5}, {"cat": "cpu_op", "name": "op", "ts": 0, "dur": 200}]
assert gpu_check.kernels_of(events) == [{"name": "a", "share": 0.75}, {"name": "b", "share": 0.25}]
assert gpu_check.idle_share(events) == 0.0625, gpu_check.idle_share(events)
assert gpu_check.idle_share(events[-1:]) is None
assert "idle for 6.2%" in "\n".join(gpu_page.memory_lines({"trace_idle": 0.0625}, None))
PYTHON

# A GPU that uses 100 W when it is idle and 700 W when it is busy.
make_program "$scratch/gpu/nvidia-smi" <<'SH'
#!/usr/bin/env bash
if [[ $* == *-lms* ]]; then
  while printf '100.00, 4, 0\n700.00, 20000, 99\n'; do sleep 0.1; done
else
  echo 'NVIDIA H100 80GB HBM3, 81559 MiB, 580.0'
fi
SH
# cuda_test TEST…: TEST is NAME=ENDING. Has the tests of a suite Cuda, which end with OK, FAILED or SKIPPED, by a CRASH, or never (HANG).
# After one has failed, all others of the process fail, as on a device that is lost. WAIT waits until something is compiled. The tests of
# fused kernels have names with Kernel.
make_cuda_test() {
  make_program "$scratch/bin/cuda_test" <<SH
#!/usr/bin/env bash
tests='$*' scratch=$scratch
$(
    cat <<'BODY'
if [[ $1 == --gtest_list_tests ]]; then
  echo Cuda.
  case $2 in
    *=-*) tests=$(tr ' ' '\n' <<<"$tests" | grep -v Kernel) ;;
    *CudaKernelsTest*) tests=$(tr ' ' '\n' <<<"$tests" | grep Kernel) ;;
    *) tests=${tests%% *} ;;  # out of memory
  esac
  for test in $tests; do echo "  ${test%=*}"; done
  exit
fi
lost=
for test in $tests; do
  name=${test%=*} ending=${lost:-${test#*=}}
  [[ :${2#*=}: == *:Cuda.$name:* ]] || continue
  echo "[ RUN      ] Cuda.$name"
  case $ending in
    OK) ;;
    WAIT)
      while [[ ! -e $scratch/compiling ]]; do sleep 0.05; done
      ending=OK
      ;;
    SKIPPED) printf 'cuda_test.cc:1: Skipped\nno CUDA device available\n\n' ;;
    FAILED) printf 'cuda_test.cc:1: Failure\nExpected: %s\n\n' "$name" && lost=FAILED ;;
    CRASH) echo 'an illegal address' >&2 && kill -SEGV $$ ;;
    HANG)
      sleep 1000 &
      echo $! >"$scratch/child"
      wait
      ;;
  esac
  printf '[ %8s ] Cuda.%s (1 ms)\n' "$ending" "$name"
done
[[ -z $lost ]]
BODY
  )
SH
}
make_cuda_test A=OK B=OK AdamwKernel=OK CrossEntropyKernel=OK GeluKernel=OK NormKernel=OK SwigluKernel=OK
make_program "$scratch/bin/stokerd" <<'SH'
#!/usr/bin/env bash
echo 'CUDA      yes, with fused kernels'
SH
make_program "$scratch/gpu/compute-sanitizer" <<'SH'
#!/usr/bin/env bash
[[ $SUMMARY != crash ]] || kill -SEGV $$
[[ "$*" != *CudaKernelsTest* || "$*" == *'--kernel-name kernel_substring=stoker'* ]] || SUMMARY='ERROR SUMMARY: 5 errors'  # of LibTorch's kernels
printf '%s\n' "${TESTS-[  PASSED  ] 2 tests.}" "$SUMMARY"
[[ $SUMMARY == *' 0 '* ]]
SH
# Ends when nvidia-smi has printed. Each fused kernel makes it faster; BROKEN_KERNEL fails.
make_program "$scratch/bin/stoker-bench-device" <<'SH'
#!/usr/bin/env bash
[[ $1 != --list ]] || { echo 'device-gpt2      {"model":"gpt2","units":16384,"unit":"tokens"}' && exit; }
[[ -z ${ORDER-} ]] || echo bench >>"$ORDER"
[[ $STOKER_BENCH_FUSED_KERNELS != *${BROKEN_KERNEL:-none}* ]] || { echo 'an illegal address' >&2 && exit 1; }
sleep 1
kernels=$(tr ',' ' ' <<<"$STOKER_BENCH_FUSED_KERNELS" | wc -w)
printf '{"bench":"%s","metric":"gpt2 of 163000000 parameters, 39000000 of them embeddings","unit":"tokens/s","value":%d,"spread":[499000,501000]}\n' "$2" \
  $((500000 + kernels * 25000))
SH
check() {  # FOLDER OPTION…: sets `output` and `code`
  output=$(PATH=$scratch/gpu:$PATH python3 "$root/bench/gpu_check.py" --bin "$scratch/bin" --tests "$scratch/bin" --bench-bin "$scratch/bin" \
    --config "$root/config" "$@" 2>&1) && code=0 || code=$?
}

check "$scratch/out" tests gpt2
[[ $code == 0 ]] || fail "exit $code: $output"
[[ $output == *'gpt2 eager: skipped'* ]] || fail "a Python without a GPU was measured: $output"
for text in '### NVIDIA H100 80GB HBM3' '| cuda_test | passed |' '500,000 tokens/s (MFU 37.6%)' '| 700 W |' '| fused kernels | passed |' \
  'adamw, cross_entropy, gelu, norm: 600,000 tokens/s, 1.20 x without.'; do
  grep -qF -- "$text" "$scratch/out/page.md" || fail "the page lacks '$text': $(cat "$scratch/out/page.md")"
done

# A kernel whose test fails, as rope's, which has none, is not measured. If training with the others fails, each is measured.
make_cuda_test A=OK AdamwKernel=FAILED CrossEntropyKernel=OK GeluKernel=OK NormKernel=OK
BROKEN_KERNEL=norm check "$scratch/kernels" tests gpt2
for text in '3 tests passed; kernels_passed cross_entropy, gelu, norm; reason Cuda.AdamwKernel: Expected: AdamwKernel' 'fused_kernels` cross_entropy, gelu, norm: stoker-bench-device: exit 1: an illegal address. One by one:' \
  '| cross_entropy | 525,000 tokens/s, 1.05 x without |' '| norm | stoker-bench-device: exit 1: an illegal address |'; do
  grep -qF -- "$text" "$scratch/kernels/page.md" || fail "the page lacks '$text': $(cat "$scratch/kernels/page.md")"
done
make_cuda_test A=OK B=OK AdamwKernel=OK CrossEntropyKernel=OK GeluKernel=OK NormKernel=OK SwigluKernel=OK

# What has passed is not repeated, also after a call that was ended while it wrote a result.
printf '{"part": "te' >>"$scratch/out/results.jsonl"
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

# expect_no_child MESSAGE: that the process whose id is in the file `child` has ended.
expect_no_child() {
  local child
  child=$(cat "$scratch/child")
  [[ ! -e /proc/$child || $(cut -d ' ' -f 3 "/proc/$child/stat") == Z ]] || fail "$1"
}
result_of() { grep -F "\"check\": \"$2\"" "$1/results.jsonl" | tail -n 1; }

# A test that does not end is killed, with its children; the others are run nevertheless, and after a failure in another process.
make_cuda_test A=OK B=HANG C=OK D=FAILED E=OK F=CRASH G=SKIPPED H=OK
check "$scratch/late" --shorten 30 tests
[[ $code == 1 ]] || fail "a test that does not end: exit $code, $output"
expect_no_child "a child of a killed program runs"
result=$(result_of "$scratch/late" cuda_test)
for text in '"status": "failed"' '"passed": 4' 'Cuda.B: did not end' 'Cuda.D: Expected: D' 'Cuda.F: exit -11: an illegal address' \
  '"skipped": {"Cuda.G": "no CUDA device available"}'; do
  [[ $result == *"$text"* ]] || fail "the result lacks '$text': $result"
done
for test in Cuda.A Cuda.C Cuda.E Cuda.H; do [[ $result != *"$test"* ]] || fail "$test has failed: $result"; done

# Where all tests fail, not each is run in another process.
rm -r "$scratch/late"
make_cuda_test A=FAILED B=FAILED C=FAILED D=FAILED
check "$scratch/late" tests
result=$(result_of "$scratch/late" cuda_test)
[[ $result == *'"passed": 0'*'Cuda.A: Expected: A; Cuda.B: Expected: B; '*'Cuda.D: Expected: D"'* ]] || fail "where all tests fail: $result"
[[ $(grep -c 'bin/cuda_test --gtest_color=no.*Cuda.D' "$scratch/late/log") == 2 ]] || fail "where all tests fail: $(cat "$scratch/late/log")"

# A check that has run out of time is repeated by the next call.
rm -r "$scratch/late"
make_cuda_test A=OK B=FAILED C=HANG D=HANG E=HANG F=HANG G=HANG
check "$scratch/late" --shorten 100 tests
result=$(result_of "$scratch/late" cuda_test)
[[ $code == 1 && $result == *'"status": "out of time"'*'did not end: Cuda.'* ]] || fail "without time for all tests: exit $code, $result"
make_cuda_test A=OK
check "$scratch/late" tests
[[ $output == *'cuda_test: passed'* ]] || fail "a check that ran out of time is not repeated: $output"

# Also if it is the last test that runs when the time ends, here before it has been silent for long.
rm -r "$scratch/late"
make_cuda_test A=HANG
check "$scratch/late" --shorten 60 memory
result=$(result_of "$scratch/late" "cuda_test out of memory")
[[ $result == *'"status": "out of time"'*'did not end: Cuda.A'* ]] || fail "without time for the last test: exit $code, $result"

# SIGTERM, as of timeout(1), ends the program that runs, too.
make_cuda_test A=HANG
rm "$scratch/child"
PATH=$scratch/gpu:$PATH python3 "$root/bench/gpu_check.py" --bin "$scratch/bin" --tests "$scratch/bin" --bench-bin "$scratch/bin" --config "$root/config" \
  "$scratch/ended" tests >/dev/null 2>&1 &
pid=$!
while [[ ! -s $scratch/child ]] && kill -0 $pid; do sleep 0.05; done
kill -TERM $pid
wait $pid && code=0 || code=$?
[[ $code == 143 ]] || fail "after SIGTERM: exit $code"
expect_no_child "a program runs after SIGTERM"

# What compute-sanitizer finds fails a check, and so do the lack of its summary, a crash, and failed tests. Of those of fused kernels, only
# stoker's are checked.
expect_sanitized() {  # SUMMARY STATUS REASON
  SUMMARY=$1 check "$scratch/sanitizer" --retry sanitizer
  [[ $(grep -c "^\[.* s\] sanitizer: .*: $2 in .*$3" <<<"$output") == 3 ]] || fail "compute-sanitizer with '$1': $output"
}
expect_sanitized '========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)' failed '3 errors; see the log'
expect_sanitized '' failed 'no summary of errors'
expect_sanitized crash failed 'compute-sanitizer: exit -11'
TESTS='[  FAILED  ] Cuda.A (1 ms)' expect_sanitized '========= ERROR SUMMARY: 0 errors' failed 'no errors, but Cuda.A failed'
TESTS='' expect_sanitized '========= ERROR SUMMARY: 0 errors' failed 'no test ran'
expect_sanitized '========= ERROR SUMMARY: 0 errors' passed ''

# While tests run, the compiled model is compiled, and what is measured waits until that has ended, but not longer than it may take.
mkdir -p "$scratch/bench" "$scratch/fake/torch"
cp "$root"/bench/gpu_{check,page}.py "$scratch/bench/"
cat >"$scratch/bench/device_baseline.py" <<'PYTHON'
import os, sys, time
from pathlib import Path
order, results = Path(os.environ["ORDER"]), Path(os.environ["RESULTS"])
how, requests = sys.argv[1], sys.stdin.read().split()
def write(text):
    with order.open("a") as file:
        file.write(text + "\n")
write(f"{how} {'measured' if requests else 'begins'}")
if not requests:
    (order.parent / "compiling").touch()
    while not results.exists() or "cuda_test" not in results.read_text():
        time.sleep(0.05)
    if os.environ.get("HANG"):
        time.sleep(1000)
    write(f"{how} ends")
print(163000000)
for request in requests:
    print(10)
PYTHON
cat >"$scratch/fake/torch/__init__.py" <<'PYTHON'
from types import SimpleNamespace as Names
__version__, version = "2.11.0+cu130", Names(cuda="13.0")
cuda, backends = Names(is_available=lambda: True), Names(cudnn=Names(version=lambda: 91900))
PYTHON
make_cuda_test A=WAIT
check_compiled() {  # FOLDER OPTION…
  output=$(PATH=$scratch/gpu:$PATH PYTHONPATH=$scratch/fake ORDER=$scratch/order RESULTS=$1/results.jsonl python3 "$scratch/bench/gpu_check.py" --bin "$scratch/bin" \
    --tests "$scratch/bin" --bench-bin "$scratch/bin" --config "$root/config" "$@" tests gpt2 2>&1) && code=0 || code=$?
  order=$(paste -s -d ';' "$scratch/order")
  rm "$scratch/order"
}
check_compiled "$scratch/compiled"
[[ $order == 'compiled begins;compiled ends;bench;eager measured;compiled measured;bench' ]] || fail "what was compiled when: $order: $output"
[[ $(result_of "$scratch/compiled" 'gpt2 compiled') == *'"value": 163840'* ]] || fail "the compiled model is not measured: $output"
rm "$scratch/compiling"
HANG=1 check_compiled "$scratch/hangs" --compile-limit 0
[[ $order == 'compiled begins;bench;eager measured;compiled measured;bench' ]] || fail "a compilation that does not end: $order: $output"

# Tests that skip themselves do not pass where there is a GPU.
make_cuda_test A=SKIPPED
check "$scratch/skipped" tests
[[ $code == 1 && $output == *'no test ran: no CUDA device available'* ]] || fail "skipped tests count as passed: $output"

make_cuda_test A=FAILED
check "$scratch/failed" tests
[[ $code == 1 && $output == *'Cuda.A: Expected: A'* ]] || fail "a failed test is not reported: $output"
check "$scratch/failed" tests
[[ $code == 0 && $output != *'cuda_test: failed'* ]] || fail "a failed check is repeated without --retry: exit $code, $output"
check "$scratch/failed" --retry tests
[[ $code == 1 && $output == *'cuda_test: failed'* ]] || fail "--retry does not repeat a failed check: exit $code, $output"

# Of a stokerd that ends too early, the reason is what it wrote itself.
make_program "$scratch/bin/stokerd" <<SH
#!/usr/bin/env bash
case "\$*" in
  *run.dir=*/parts*)
    printf '%s\n' '2026-11-27T12:00:00.000Z warning  cudnn attention disabled reason=none' 'error: an illegal address' 'Compile with \`TORCH_USE_CUDA_DSA\` to enable device-side assertions.' 'frame #1: main (0x1 in stokerd)' >&2
    exit 70
    ;;
  *run.dir=*/released*)
    echo \$\$ >"$scratch/child"
    sleep 1000
    ;;
esac
SH
make_program "$scratch/bin/stokerctl" <<'SH'
#!/usr/bin/env bash
echo 'cannot connect' >&2
exit 69
SH
check "$scratch/resume" --shorten 60 resume
result=$(result_of "$scratch/resume" "bit-exact resume")
[[ $result == *'"status": "failed"'*'stokerd: exit 70: error: an illegal address'* ]] || fail "a stokerd that fails: $result"
[[ $result == *'"warnings": ["cudnn attention disabled reason=none"]'* ]] || fail "the warnings of stokerd are not kept: $result"
expect_no_child "a stokerd runs after its check"

check "$scratch/unknown" nothing
[[ $code == 64 && $output == *'unknown part nothing'* ]] || fail "an unknown part: exit $code, $output"
