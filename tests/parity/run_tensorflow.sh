#!/bin/sh
# run_tensorflow.sh PARITY_TEST: compares stoker with newly generated results of TensorFlow. Exit
# code 77: TensorFlow is not available. Set STOKER_TENSORFLOW_PYTHON to the Python to use; default
# that of STOKER_PYTHON, or python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
choose_python "${STOKER_TENSORFLOW_PYTHON:-${STOKER_PYTHON:-python3}}" STOKER_TENSORFLOW_PYTHON
run_steps \
  -- import tensorflow safetensors.numpy \
  -- make_tensorflow.py "$folder" \
  -- STOKER_PARITY_TENSORFLOW="$folder" "$1" --gtest_filter='*TensorflowParityTest.*'
