#!/bin/sh
# run_captioner.sh PARITY_TEST BIN: compares captioner with the same network of torch's own modules, and the captions that the
# programs in BIN generate; these train one from a file of torchvision, too. Exit code 77: PyTorch, or torchvision or TensorBoard
# for the programs, is not available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
choose_pytorch
run_steps \
  -- import torch safetensors.torch \
  -- make_captioner.py "$folder/captioner.safetensors" \
  -- STOKER_PARITY_CAPTIONER="$folder/captioner.safetensors" "$1" --gtest_filter='*CaptionerParityTest.*' --gtest_brief=1 \
  -- import torchvision tensorboard \
  -- check_captions.py "$2" "$folder/run" \
  -- check_pretrained_captioner.py "$2" "$folder/pretrained"
