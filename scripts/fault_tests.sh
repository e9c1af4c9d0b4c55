#!/usr/bin/env bash
# Runs the fault tests of docs/reliability.md in full; normal test runs execute only a part of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
all=(crash_enum powercut_enum program_enum exact_resume damage memory ring_model)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/fault_tests.sh [TEST…]

Builds the release preset and runs the tests with every fault point; without a TEST, all of
them. Takes half an hour on two cores. A test that is not possible on this machine (no root, no loop
devices) is skipped with the reason.

  crash_enum     SIGKILL before each system call on the run directory (seconds)
  powercut_enum  power cut of an ext4 file system at each of these calls; needs root (seconds)
  program_enum   both faults with stokerd and stoker-eval (a quarter of an hour)
  exact_resume   runs killed twenty times each and compared byte by byte (ten minutes)
  damage         flipped bits and truncations of a checkpoint, read by each program (minutes)
  memory         the memory of stokerd over 100,000 steps (a minute)
  ring_model     every interleaving of the ring's protocol (minutes, 6 GB)

Results: build/logs/fault_tests-TEST.log
HELP
  exit 0
fi
cd "$root"
names=("$@")
((${#names[@]})) || names=("${all[@]}")
for name in "${names[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || die "unknown test $name; one of: ${all[*]}"
done

# program_of TEST: the test program. filter_of TEST: those of its tests that run.
program_of() {
  case $1 in
    damage) echo fault_test ;;
    memory) echo system_test ;;
    *) echo "$1" ;;
  esac
}
filter_of() {
  case $1 in
    damage) echo 'CorruptCheckpointTest.*' ;;
    memory) echo 'MemoryGrowthTest.*:MemoryUsageTest.*' ;;
    *) echo '*' ;;
  esac
}
# run_tests TEST: fails, too, if the filter matches no test.
run_tests() {
  local program filter
  program=$(program_of "$1")
  filter=$(filter_of "$1")
  "$root/build/release/tests/$program" --gtest_filter="$filter"
  ! grep -q '^\[==========\] Running 0 tests' "$logs/fault_tests-$1.log" || die "$program has no test $filter"
}

programs=()
for name in "${names[@]}"; do
  [[ $name == ring_model ]] || programs+=("$(program_of "$name")")
done

if ((${#programs[@]})); then "$root/scripts/build.sh" release programs minimal-run "${programs[@]}"; fi
printf 'On %s, kernel %s, %s; temporary files on %s\n' "$(date -u +%F)" "$(uname -r)" "$(uname -m)" \
  "$(stat -f -c %T /dev/shm 2>/dev/null || stat -f -c %T "${TMPDIR:-/tmp}")"
for name in "${names[@]}"; do
  command=(run_tests "$name")
  [[ $name != ring_model ]] || command=("$root/tests/shared/ring/ring_model_test.sh" "$root")
  STOKER_FAULT_TESTS=full step "Run $name" "fault_tests-$name" "${command[@]}"
  grep -E '^(enumerated|exact|memory): |all interleavings|\(skipped\)|: Skipped' -A1 "$logs/fault_tests-$name.log" |
    grep -E '^(enumerated|exact|memory): |all interleavings|Skipped|only root|this machine|no disk' | sed 's/^/  /' || true
done
