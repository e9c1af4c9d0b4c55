#!/bin/sh
# run_double.sh TWIN_DOUBLE_TEST: checks every model over pictures against PyTorch itself, in double precision; torchvision's own
# models where it can be imported, else the twins of them. Exit code 77: there is no PyTorch here.
# STOKER_PYTHON names the Python to use; default python3.
set -eu
python=${STOKER_PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
if ! reason=$("$python" -c 'import torch, safetensors.torch' 2>&1); then
  echo "skipped: $python cannot import torch and safetensors (set STOKER_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import torchvision' 2>/dev/null || echo "with the twins: $python cannot import torchvision"
"$python" "$here/make_double.py" "$folder/double.safetensors" --all
STOKER_TWIN_DOUBLE="$folder/double.safetensors" "$1"
