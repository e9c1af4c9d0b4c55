#!/bin/sh
# run_double.sh PARITY_TEST: compares image models with PyTorch in double precision, using
# torchvision's models if it can be imported, otherwise the counterparts: those that together have
# every kind of block, with STOKER_PARITY=all every one (minutes). Exit code 77: PyTorch is not
# available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
require_pytorch
"$python" -c 'import torchvision' 2>/dev/null || echo "with the counterparts: $python cannot import torchvision"
if [ "${STOKER_PARITY:-}" = all ]; then models=--all; else models=; fi
# shellcheck disable=SC2086  # no option if empty
"$python" "$here/make_double.py" "$folder/double.safetensors" $models
STOKER_PARITY_DOUBLE="$folder/double.safetensors" "$1" --gtest_filter='*DoublePrecisionParityTest.*'
