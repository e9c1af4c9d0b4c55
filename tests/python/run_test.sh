#!/bin/sh
# run_test.sh SOURCE_DIR: exporter_test.py. Exits with code 77 if there is no PyTorch.
. "$1/tests/parity/python_or_skip.sh"
choose_pytorch
require_modules 'torch, safetensors.torch'
export PYTHONPATH="$1/python:$1/tests/python"
"$python" "$1/tests/python/exporter_test.py"
