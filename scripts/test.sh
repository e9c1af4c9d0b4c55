#!/usr/bin/env bash
# Installs missing dependencies, builds the release preset and runs its tests.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/test.sh [--all] [CTEST-ARGUMENT…]

Installs packages and LibTorch, builds the programs and runs the tests that every change runs: all unit tests that need no
other software, and one test with real processes for each guarantee, action, exit code and program. A repeated run only does
what has changed.

  --all  all tests but those of scripts/nightly.sh: also against Python's PyTorch, transformers and TensorFlow, in groups of
         processes, under systemd, in a browser, and of the packages. Installs what they need: 1.5 GB to download

Other arguments are passed to ctest: scripts/test.sh -R ring_test. A test of ctest is a program; one of its cases:
build/release/tests/ring_test --gtest_filter='ShmRingTest.*'. Results: build/release/test-results.
HELP
}
tier=quick
case ${1:-} in
  -h | --help) usage && exit 0 ;;
  --all)
    tier=all
    shift
    ;;
esac
cd "$root"
began=$(now)

if [[ $tier == quick ]]; then
  "$root/scripts/deps.sh" --tests
  "$root/scripts/build.sh" release quick_tests
  selection=(-L quick)
  report=()
else
  "$root/scripts/deps.sh" --tests --cuda-link --nvcc --python --peers --tensorflow --service --launchers --package --check
  "$root/scripts/build.sh" release
  selection=(-LE nightly)
  report=(--all)
fi

status=0
(run_tests release "${selection[@]}" "$@") || status=$?
report_tests "${report[@]}" "$root/build/release/test-results" || status=$?
say "Total: $(seconds_since "$began"), on $(describe_machine)"
exit "$status"
