#!/usr/bin/env bash
# gpu_dry_run_test.sh ROOT BUILD: runs checks of scripts/gpu_check.sh on a CUDA device whose kernels do nothing (tests/daemon/cuda/dry_run).
# Skipped without the CUDA module. Checks of numbers fail there.
set -euo pipefail
root=${1:?give the root of the repository} build=${2:?give the build folder}
dry_run=$build/tests/daemon/cuda/dry_run/libraries/libdry_run.so
[[ -e $dry_run && $build -ef $root/build/release ]] || { echo "$dry_run is not built, or this is another build; skipped" && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'gpu_dry_run_test: %s\n' "$*" >&2
  exit 1
}
mkdir "$scratch/bin"
cat >"$scratch/bin/nvidia-smi" <<'SH2'
#!/usr/bin/env bash
case $* in
  -L) echo 'GPU 0: dry run' ;;
  *-lms*) while echo '[N/A], 20000, 99'; do sleep 0.1; done ;;
  *memory.used*) echo 300 ;;
  *) echo 'dry run, 8192 MiB, 580.0' ;;
esac
SH2
chmod +x "$scratch/bin/nvidia-smi"

PATH=$scratch/bin:$PATH LD_PRELOAD=$dry_run STOKER_PYTHON=/usr/bin/python3 "$root/scripts/gpu_check.sh" --quick --limit 500 "$scratch/results" start resume memory \
  >"$scratch/output" 2>&1 || fail "exit $?: $(cat "$scratch/output")"
result_of() { grep -F "\"check\": \"$1\"" "$scratch/results/results.jsonl"; }
for check in libraries 'first steps' attention 'bit-exact resume' 'bit-exact pause --release' 'gpt2 in stokerd' 'cuda_test out of memory'; do
  [[ $(result_of "$check") == *'"status": "passed"'* ]] || fail "$check: $(result_of "$check")"
done
# Two buffers in each of two runs; in stokerd a second time after the pause.
[[ $(result_of 'first steps') == *'"graphs": 4'* && $(result_of 'gpt2 in stokerd') == *'"graphs": 4'* ]] || fail "graphs: $(cat "$scratch/results/results.jsonl")"
[[ $(result_of 'gpt2 in stokerd') == *'"memory_mib": 20000.0, "busy_percent": 99.0'* ]] || fail "without the power, the memory is lost: $(result_of 'gpt2 in stokerd')"
grep -q '^By nvidia-smi: device busy 99 % of the time, memory at most 20,000 MiB' "$scratch/results/page.md" || fail "the page: $(cat "$scratch/results/page.md")"
grep -q '^| allocated | [1-9]' "$scratch/results/page.md" || fail "the page has no memory of the device: $(cat "$scratch/results/page.md")"
