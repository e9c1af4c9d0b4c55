#!/bin/sh
# Sourced by run_parity.sh and run_double.sh. Sets $python to a Python with PyTorch and $folder to a
# temporary directory that is removed on exit. Exits with code 77 if there is no PyTorch.
python=${STOKER_PYTHON:-python3}
if ! reason=$("$python" -c 'import torch, safetensors.torch' 2>&1); then
  echo "skipped: $python cannot import torch and safetensors (set STOKER_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
