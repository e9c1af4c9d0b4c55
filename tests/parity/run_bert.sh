#!/bin/sh
# run_bert.sh PARITY_TEST: compares bert with transformers, with random configurations. See transformers.sh.
set -eu
modules='torch, transformers, safetensors.torch'
. "$(dirname "$0")/transformers.sh"
"$python" "$here/make_bert.py" "$folder" "$count"
STOKER_PARITY_BERT="$folder" "$1" --gtest_filter='*BertParityTest.*' --gtest_brief=1
"$python" "$here/check_bert.py" "$folder"
