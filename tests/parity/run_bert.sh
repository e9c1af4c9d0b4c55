#!/bin/sh
# run_bert.sh PARITY_TEST: compares bert with transformers, with random configurations. See transformers.sh.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch transformers safetensors.torch \
  -- make_bert.py "$folder" "$count" \
  -- STOKER_PARITY_BERT="$folder" "$1" --gtest_filter='*BertParityTest.*' --gtest_brief=1 \
  -- check_bert.py "$folder"
