#!/bin/sh
# For run_parity.sh and run_double.sh, which read it in: names the Python with PyTorch as $python and a folder for what it
# makes, removed at the end, as $folder. Where there is no PyTorch it ends the script with exit code 77.
python=${STOKER_PYTHON:-python3}
if ! reason=$("$python" -c 'import torch, safetensors.torch' 2>&1); then
  echo "skipped: $python cannot import torch and safetensors (set STOKER_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
