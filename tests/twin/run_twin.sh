#!/bin/sh
# run_twin.sh TWIN_EXPORT TWIN_EVALUATION_TEST: checks stoker against PyTorch itself. Exit code 77: there is no PyTorch here.
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
"$python" "$here/make_golden.py" "$folder/golden"
"$1" "$folder/checkpoints"
"$python" "$here/check_twin.py" "$here/golden" "$folder/golden" "$folder/checkpoints"
"$python" "$here/make_evaluation.py" "$folder/evaluation"
STOKER_TWIN_EVALUATION="$folder/evaluation" "$2"
