#!/usr/bin/env bash
# Runs the fault tests of docs/reliability.md in full; normal test runs execute only a part of them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
all=(crash_enum powercut_enum program_enum exact_resume)

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/fault_tests.sh [PROOF…]

Builds the release preset and runs the proofs with every point that they know; without a PROOF all of
them. Half an hour on two cores. What a proof cannot do here (no root, no loop devices) it skips and
says why.

  crash_enum     SIGKILL before each system call of a run on its directory (seconds)
  powercut_enum  the power of a real ext4 cut at each of them; needs root (seconds)
  program_enum   stokerd and stoker-eval themselves, by both (a quarter of an hour)
  exact_resume   kinds of runs, killed twenty times each and compared byte by byte (ten minutes)

The results stand in build/logs/fault_tests-PROOF.log.
HELP
  exit 0
fi
cd "$root"
proofs=("$@")
((${#proofs[@]})) || proofs=("${all[@]}")
for proof in "${proofs[@]}"; do
  [[ " ${all[*]} " == *" $proof "* ]] || die "$proof is none of: ${all[*]}"
done

"$root/scripts/build.sh" release programs minimal-run "${proofs[@]}"
printf 'On %s, kernel %s, %s; temporary files on %s\n' "$(date -u +%F)" "$(uname -r)" "$(uname -m)" \
  "$(stat -f -c %T /dev/shm 2>/dev/null || stat -f -c %T "${TMPDIR:-/tmp}")"
for proof in "${proofs[@]}"; do
  STOKER_PROOF=full step "Prove $proof" "fault_tests-$proof" "$root/build/release/tests/$proof"
  grep -E '^(enumerated|exact): |\(skipped\)|: Skipped' -A1 "$logs/fault_tests-$proof.log" |
    grep -E '^(enumerated|exact): |Skipped|only root|this machine|no disk' | sed 's/^/  /' || true
done
