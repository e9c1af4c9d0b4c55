#!/usr/bin/env bash
# Runs the fault tests of docs/reliability.md in full; normal test runs execute only a part of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
all=(crash_enum powercut_enum program_enum exact_resume ring_model)

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

programs=()
for name in "${names[@]}"; do
  [[ $name == ring_model ]] || programs+=("$name")
done

if ((${#programs[@]})); then "$root/scripts/build.sh" release programs minimal-run "${programs[@]}"; fi
printf 'On %s, kernel %s, %s; temporary files on %s\n' "$(date -u +%F)" "$(uname -r)" "$(uname -m)" \
  "$(stat -f -c %T /dev/shm 2>/dev/null || stat -f -c %T "${TMPDIR:-/tmp}")"
for name in "${names[@]}"; do
  command=("$root/build/release/tests/$name")
  [[ $name != ring_model ]] || command=("$root/tests/shared/ring/ring_model_test.sh" "$root")
  STOKER_FAULT_TESTS=full step "Run $name" "fault_tests-$name" "${command[@]}"
  grep -E '^(enumerated|exact): |all interleavings|\(skipped\)|: Skipped' -A1 "$logs/fault_tests-$name.log" |
    grep -E '^(enumerated|exact): |all interleavings|Skipped|only root|this machine|no disk' | sed 's/^/  /' || true
done
