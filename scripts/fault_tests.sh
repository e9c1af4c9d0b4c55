#!/usr/bin/env bash
# Runs the fault tests of docs/reliability.md in full; normal test runs execute only a part of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
all=(crash_enum powercut_enum program_enum exact_resume exported corruption memory device_schedule ring_model hostile)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/fault_tests.sh [TEST…]

Builds the release preset and runs the tests with every fault point; without a TEST, all of
them. Takes about three hours on two cores. A test that is not possible on this machine (no root, no loop
devices) is skipped with the reason.

  crash_enum     SIGKILL before each system call on the run directory (seconds)
  powercut_enum  power cut of an ext4 file system at each of these calls; needs root (seconds)
  program_enum   both faults with stokerd and stoker-eval (a quarter of an hour)
  exact_resume   runs killed twenty times each and compared byte by byte (ten minutes)
  exported       runs of a Python module that is exported here, killed twenty times; needs scripts/deps.sh --python (minutes)
  corruption     flipped bits and truncations of a checkpoint, read by each program (minutes)
  memory         the memory of stokerd over 100,000 steps (a minute)
  device_schedule  training on a simulated device in 100,000 random schedules (20 minutes)
  ring_model     the interleavings of the ring's protocol (an hour, 12 GB); its code in schedules with
                 one preemption more (minutes)
  hostile        all tests labeled `hostile`, with 10 s to 10 minutes of random writes to the ring
                 each, those without LibTorch also with AddressSanitizer (20 minutes)

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
    corruption) echo fault_test ;;
    memory) echo system_test ;;
    device_schedule) echo device_schedule_test ;;
    *) echo "$1" ;;
  esac
}
filter_of() {
  case $1 in
    corruption) echo 'CorruptCheckpointTest.*' ;;
    memory) echo 'MemoryGrowthTest.*:MemoryUsageTest.*' ;;
    *) echo '*' ;;
  esac
}
# run_tests TEST: a program fails, too, if the filter selects no test.
run_tests() { "$root/build/release/tests/$(program_of "$1")" --gtest_filter="$(filter_of "$1")"; }

check_ring() {
  "$root/build/release/tests/ring_schedule_test"
  "$root/tests/shared/ring/ring_model_test.sh" "$root"
}

check_exported() {
  export STOKER_PYTHON=${STOKER_PYTHON:-$root/.deps/venv/bin/python}
  "$root/tests/python/export_zoo.sh" "$root" "$root/build/release/tests/exported" || (($? == 77))
  "$root/build/release/tests/exported_run_test"
}

targets=() sanitized=()
for name in "${names[@]}"; do
  case $name in
    ring_model) targets+=(ring_schedule_test) ;;
    exported) targets+=(programs exported_run_test) ;;
    hostile)
      targets+=(programs hostile_cache_test hostile_ring_test hostile_test slot_writer_test socket_collision_test)
      sanitized=(hostile_cache_test hostile_ring_test)
      ;;
    *) targets+=(programs minimal-run "$(program_of "$name")") ;;
  esac
done

if ((${#targets[@]})); then "$root/scripts/build.sh" release "${targets[@]}"; fi
if ((${#sanitized[@]})); then "$root/scripts/build.sh" asan "${sanitized[@]}"; fi
printf 'On %s, kernel %s, %s; temporary files on %s\n' "$(date -u +%F)" "$(uname -r)" "$(uname -m)" \
  "$(stat -f -c %T /dev/shm 2>/dev/null || stat -f -c %T "${TMPDIR:-/tmp}")"
for name in "${names[@]}"; do
  command=(run_tests "$name")
  case $name in
    ring_model) command=(check_ring) ;;
    exported) command=(check_exported) ;;
    hostile)
      STOKER_FAULT_TESTS=full step "Run $name with AddressSanitizer" "fault_tests-$name-asan" ctest --preset asan -L hostile
      command=(ctest --preset release -L hostile)
      ;;
  esac
  STOKER_FAULT_TESTS=full step "Run $name" "fault_tests-$name" "${command[@]}"
  grep -E '^(enumerated|exact|memory|schedules): |all interleavings|at most 6 preemptions|\(skipped\)|: Skipped' -A1 "$logs/fault_tests-$name.log" |
    grep -E '^(enumerated|exact|memory|schedules): |all interleavings|at most 6 preemptions|Skipped|only root|this machine|no disk' | sed 's/^/  /' || true
done
