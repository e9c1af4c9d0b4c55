#!/bin/sh
# run_images.sh PARITY_TEST BIN: compares ResNet, ViT and Inception v3 with transformers, timm and torchvision, with random
# weights, and loads what the programs in BIN train and export. See transformers.sh.
set -eu
modules='torch, torchvision, timm, transformers, safetensors.torch'
. "$(dirname "$0")/transformers.sh"
"$python" "$here/make_images.py" "$folder" "$count"
STOKER_PARITY_IMAGES="$folder" "$1" --gtest_filter='*ImageParityTest.*' --gtest_brief=1
"$python" "$here/check_images.py" "$folder"
"$python" "$here/check_exported_images.py" "$2" "$folder/run"
