#!/bin/sh
# run_fine_tuning.sh BIN [minilm SVG]: fine-tunes a BERT, with the programs in BIN and in PyTorch, and compares the
# learning curves. See transformers.sh and check_fine_tuning.py.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch transformers peft \
  -- check_fine_tuning.py "$1" "$folder" ${2:+"$2" "$3"}
