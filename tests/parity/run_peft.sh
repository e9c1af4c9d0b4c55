#!/bin/sh
# run_peft.sh PARITY_TEST: compares adapters with PEFT, with random configurations of each model_type. See
# transformers.sh.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch torchvision transformers peft safetensors.torch \
  -- make_peft.py "$folder" "$count" \
  -- STOKER_PARITY_PEFT="$folder" "$1" --gtest_filter='*PeftParityTest.*' --gtest_brief=1 \
  -- check_peft.py "$folder"
