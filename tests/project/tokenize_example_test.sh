#!/usr/bin/env bash
# tokenize_example_test.sh ROOT: checks that docs/examples/tokenize_texts.py writes files for format
# `tokens` and reports errors. Exit code 77: Python is not available.
set -euo pipefail
script=$1/docs/examples/tokenize_texts.py
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

expect() { # WHAT EXPECTED ACTUAL
  if [[ $2 != "$3" ]]; then
    printf '%s:\n  expected %s\n  found    %s\n' "$1" "$2" "$3"
    exit 1
  fi
}
numbers() { od -An -v -tu2 --endian=little "$1" | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'; }
expect_error() { # WHAT THE-MESSAGE-HAS ARGUMENT…
  local what=$1 expected_text=$2 output
  shift 2
  if output=$(python3 "$script" "$@" 2>&1); then expect "$what" rejected accepted; fi
  [[ $output == *"$expected_text"* ]] || expect "$what" "$expected_text" "$output"
}

printf 'ab\n' >one.txt
printf '{"content": "c"}\n\n{"content": "é"}\n' >two.jsonl
output=$(python3 "$script" --tokenizer bytes --out all.bin --field content one.txt two.jsonl)
expect "tokens of the texts, each with its end" "97 98 10 256 99 256 195 169 256" "$(numbers all.bin)"
[[ $output == *"dtype: uint16"* && $output == *"vocab_size: 257"* ]] || expect "settings" "dtype and vocab_size" "$output"
python3 "$script" --tokenizer bytes --out ended.bin --end 0 one.txt >/dev/null
expect "another end token" "97 98 10 0" "$(numbers ended.bin)"

expect_error "no such tokenizer" "is not one of" --tokenizer words --out x.bin one.txt
expect_error "lines without the field" "'text' is not a string" --tokenizer bytes --out x.bin --field text two.jsonl
expect_error "no --field" "--field" --tokenizer bytes --out x.bin two.jsonl
expect_error "an invalid end token" "no end-of-text token" --tokenizer bytes --out x.bin --end 257 one.txt
if [[ -e x.bin ]]; then expect "a failed call leaves no file" none x.bin; fi
