#!/usr/bin/env bash
# Puts one word at a time into a file of a small tree and expects check_words.sh to reject it. The
# words are split, so that the check accepts this file.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check_words.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
fail() {
  printf 'check_words_test: %s\n' "$*" >&2
  exit 1
}
expect_rejected() {
  local text=$1 expected=$2 output
  printf 'first line\n%s\n' "$text" >"$tree/a.cc"
  if output=$("$check" "$tree" 2>&1); then fail "'$text' was not rejected"; fi
  [[ $output == "$expected" ]] || fail "'$text': expected '$expected', got '$output'"
}

printf 'unconfined, greyhound; std::promise; images of datasets\n' >"$tree/a.cc"
"$check" "$tree" || fail 'standard words were rejected'
expect_rejected '// Led''ger.' 'a.cc:2: Led''ger -> log'
expect_rejected 'int num_col''ours = 0;' 'a.cc:2: col''ours -> color'
expect_rejected 'kBad''Sample' 'a.cc:2: Bad''Sample -> sample error'
expect_rejected '"a data ''set"' 'a.cc:2: data ''set -> dataset'
expect_rejected 'outside_''producers()' 'a.cc:2: outside_''producers -> external producer'
expect_rejected 'normal''ised' 'a.cc:2: normal''ised -> -ize'
