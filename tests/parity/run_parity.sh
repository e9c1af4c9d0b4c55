#!/bin/sh
# run_parity.sh PARITY_EXPORT PARITY_TEST: compares stoker with PyTorch. Exit code 77: PyTorch or torchvision is not
# available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
choose_pytorch
run_steps \
  -- import torch torchvision safetensors.torch \
  -- check_torchvision.py "$here/golden" "$1" \
  -- "$1" "$folder/checkpoints" \
  -- check_parity.py "$here/golden" "$folder/checkpoints" \
  -- check_inputs.py "$here/golden" "$folder/inputs" \
  -- make_evaluation.py "$folder/evaluation" \
  -- make_steps.py "$folder/steps.safetensors" \
  -- STOKER_PARITY_EVALUATION="$folder/evaluation" STOKER_PARITY_STEPS="$folder/steps.safetensors" \
  "$2" --gtest_filter='*EvaluationParityTest.*:StepParityTest.*'
