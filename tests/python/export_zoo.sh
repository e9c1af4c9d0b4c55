#!/bin/sh
# export_zoo.sh SOURCE_DIR FOLDER [NAME]…: export_zoo.py with the Python of the peers, or another with PyTorch. Exits with code 77 without PyTorch.
. "$1/tests/parity/python_or_skip.sh"
choose_peers "$1/tests/parity"
require_modules 'torch, safetensors.torch'
export PYTHONPATH="$1/python:$1/tests/python"
source=$1
shift
"$python" "$source/tests/python/export_zoo.py" "$@"
