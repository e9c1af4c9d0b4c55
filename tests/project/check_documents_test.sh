#!/usr/bin/env bash
# Adds one broken reference at a time to a small tree and expects check_documents.sh to reject it.
# shellcheck disable=SC2016  # the backticks are Markdown
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_documents.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/docs" "$tree/scripts" "$tree/tests"
printf 'TEST(RingTest, IsRound) {}\nTEST_F(RingTest,\n       HasAVeryLongName) {}\n' >"$tree/tests/ring_test.cc"
touch "$tree/scripts/test.sh"
printf '# Ring layout\n\n## The slot word\n' >"$tree/docs/ring.md"

write_readme() { printf '# Title\n\nRun `scripts/test.sh`; see [the ring](docs/ring.md#the-slot-word) and tests/ or /usr/include.\n%s\n' "$1" >"$tree/README.md"; }
expect_error() {
  local what=$1 text=$2 expected=$3 output
  write_readme "$text"
  if output=$("$check" "$tree" 2>&1); then
    printf '%s: was accepted\n' "$what" >&2
    exit 1
  elif [[ $output != *"$expected"* ]]; then
    printf '%s: rejected, but without "%s": %s\n' "$what" "$expected" "$output" >&2
    exit 1
  fi
}

write_readme 'Shown by `tests/ring_test.cc`: `IsRound`, `HasAVeryLongName`, and `RingTest.IsRound`, `RingTest.HasAVeryLongName`.'
"$check" "$tree"
write_readme $'| fault | |\n|---|---|\n| 1. a kill | |\n| 2, 3. a power cut | |\n| a loss | |'
"$check" "$tree"
expect_error 'a row number that occurs twice' $'| 1, 2. a kill | |\n| 2. a power cut | |' 'row 2 occurs twice'
expect_error 'a dead link' 'See [this](docs/gone.md).' 'docs/gone.md: no such file'
expect_error 'a dead heading' 'See [this](docs/ring.md#gone).' 'no such heading'
expect_error 'a dead path' 'Run `scripts/gone.sh`.' 'scripts/gone.sh, which does not exist'
expect_error 'a dead test' 'Shown by `tests/ring_test.cc`: `IsRound`, `IsSquare`.' 'the test IsSquare'
expect_error 'a dead test of a suite' 'Shown by `RingTest.IsRound`, `RingTest.IsSquare`.' 'the test RingTest.IsSquare'
expect_error 'a test of another suite' 'Shown by `SquareTest.IsRound`.' 'the test SquareTest.IsRound'
expect_error 'a path of a machine' 'Look into /home/me/stoker.' "a specific machine"
printf '# Pages\n\nSee [the ring](ring.md).\n' >"$tree/docs/README.md"
write_readme ''
"$check" "$tree"
printf '# Rows\n' >"$tree/docs/rows.md"
expect_error 'a page that the index lacks' '' 'docs/README.md: has no link to rows.md'
