#!/bin/sh
# run_tensorflow.sh PARITY_TEST: compares stoker with newly generated results of TensorFlow. Exit
# code 77: TensorFlow is not available. Set STOKER_TENSORFLOW_PYTHON to the Python to use; default
# that of STOKER_PYTHON, or python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${STOKER_TENSORFLOW_PYTHON:-${STOKER_PYTHON:-python3}}
if ! reason=$("$python" -c 'import tensorflow, safetensors.numpy' 2>&1); then
  echo "skipped: $python cannot import tensorflow and safetensors (set STOKER_TENSORFLOW_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
"$python" "$here/make_tensorflow.py" "$folder"
STOKER_PARITY_TENSORFLOW="$folder" "$1" --gtest_filter='*TensorflowParityTest.*'
