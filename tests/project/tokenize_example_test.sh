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
refused() { # WHAT THE-MESSAGE-HAS ARGUMENT…
  local what=$1 words=$2 said
  shift 2
  if said=$(python3 "$script" "$@" 2>&1); then expect "$what" refused accepted; fi
  [[ $said == *"$words"* ]] || expect "$what" "$words" "$said"
}

printf 'ab\n' >one.txt
printf '{"content": "c"}\n\n{"content": "é"}\n' >two.jsonl
said=$(python3 "$script" --tokenizer bytes --out all.bin --field content one.txt two.jsonl)
expect "tokens of the texts, each with its end" "97 98 10 256 99 256 195 169 256" "$(numbers all.bin)"
[[ $said == *"dtype: uint16"* && $said == *"vocab_size: 257"* ]] || expect "settings" "dtype and vocab_size" "$said"
python3 "$script" --tokenizer bytes --out ended.bin --end 0 one.txt >/dev/null
expect "another end" "97 98 10 0" "$(numbers ended.bin)"

refused "no such tokenizer" "is none of" --tokenizer words --out x.bin one.txt
refused "lines without the field" "'text' is no text" --tokenizer bytes --out x.bin --field text two.jsonl
refused "no field named" "--field" --tokenizer bytes --out x.bin two.jsonl
refused "an end that is no token" "no token for the end" --tokenizer bytes --out x.bin --end 257 one.txt
if [[ -e x.bin ]]; then expect "what was refused leaves no file" none x.bin; fi
