#!/bin/sh
# run_double.sh PARITY_TEST: compares image models with PyTorch in double precision, using
# torchvision's models if it can be imported, otherwise the counterparts: those that together have
# every kind of block, for three steps, with STOKER_PARITY=all every one (minutes). Exit code 77:
# PyTorch is not available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
choose_pytorch
if [ "${STOKER_PARITY:-}" = all ]; then models=--all; else models=--short; fi
run_steps \
  -- import torch safetensors.torch \
  -- make_double.py "$folder/double.safetensors" $models \
  -- STOKER_PARITY_DOUBLE="$folder/double.safetensors" "$1" --gtest_filter='*DoublePrecisionParityTest.*'
