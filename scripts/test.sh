#!/usr/bin/env bash
# Installs missing dependencies, builds the release preset and runs all of its tests.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/test.sh [CTEST-ARGUMENT…]

Installs packages and LibTorch, builds the release preset and runs the tests. A repeated run only does
what has changed. Arguments are passed to ctest: scripts/test.sh -R ShmRing, scripts/test.sh -L system.
The results are in build/release/test-results.xml (JUnit).
HELP
  exit 0
fi
cd "$root"
began=$(now)

"$root/scripts/deps.sh" --cuda-link --nvcc --python --peers --service --launchers --package --check
export STOKER_PYTHON=${STOKER_PYTHON:-$root/.deps/venv/bin/python}
"$root/scripts/build.sh" release

results=$root/build/release/test-results.xml
rm -f "$results"
step "Run the tests" test-release ctest --preset release --output-junit "$results" "$@"
grep -E '^[0-9]+% tests passed|\((Not Run|Disabled)\)$' "$logs/test-release.log" || true
if [[ -e $results ]]; then skipped_tests "$results"; fi
say "All of it took $(seconds_since "$began")"
