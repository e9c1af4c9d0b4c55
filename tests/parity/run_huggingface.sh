#!/bin/sh
# run_huggingface.sh PARITY_TEST BIN: compares gpt2 and llama with transformers, with random configurations
# of each model_type, and loads what the programs in BIN train and export, adapters with PEFT. See transformers.sh.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch transformers peft safetensors.torch \
  -- make_huggingface.py "$folder" "$count" \
  -- STOKER_PARITY_HUGGINGFACE="$folder" "$1" --gtest_filter='*HuggingFaceParityTest.*' --gtest_brief=1 \
  -- check_huggingface.py "$folder" \
  -- check_exported_run.py "$2" "$folder/run"
