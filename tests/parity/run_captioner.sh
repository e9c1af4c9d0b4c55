#!/bin/sh
# run_captioner.sh PARITY_TEST: compares captioner with the same network of torch's own modules. Exit code 77: PyTorch is
# not available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
require_pytorch
"$python" "$here/make_captioner.py" "$folder/captioner.safetensors"
STOKER_PARITY_CAPTIONER="$folder/captioner.safetensors" "$1" --gtest_filter='*CaptionerParityTest.*' --gtest_brief=1
