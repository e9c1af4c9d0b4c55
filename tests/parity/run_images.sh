#!/bin/sh
# run_images.sh PARITY_TEST BIN: compares ResNet, ViT and Inception v3 with transformers, timm and torchvision, with random
# weights, and loads what the programs in BIN train and export. See transformers.sh.
set -eu
. "$(dirname "$0")/transformers.sh"
run_steps \
  -- import torch torchvision timm transformers safetensors.torch \
  -- make_images.py "$folder" "$count" \
  -- STOKER_PARITY_IMAGES="$folder" "$1" --gtest_filter='*ImageParityTest.*' --gtest_brief=1 \
  -- check_images.py "$folder" \
  -- check_exported_images.py "$2" "$folder/run"
