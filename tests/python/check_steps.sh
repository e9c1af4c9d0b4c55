#!/bin/sh
# check_steps.sh SOURCE_DIR BIN FOLDER [NAME]…: check_steps.py. Exits with code 77 without PyTorch.
. "$1/tests/parity/python_or_skip.sh"
choose_pytorch
require_modules 'torch, safetensors.torch, numpy'
export PYTHONPATH="$1/python:$1/tests/python"
source=$1 bin=$2 output=$3
shift 3
rm -rf "$output"
"$python" "$source/tests/python/check_steps.py" "$bin" "$output" "$@"
