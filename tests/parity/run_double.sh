#!/bin/sh
# run_double.sh PARITY_DOUBLE_TEST: checks every model over pictures against PyTorch itself, in double precision; torchvision's own
# models where it can be imported, else the counterparts of them. Exit code 77: there is no PyTorch here.
# STOKER_PYTHON names the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
"$python" -c 'import torchvision' 2>/dev/null || echo "with the counterparts: $python cannot import torchvision"
"$python" "$here/make_double.py" "$folder/double.safetensors" --all
STOKER_PARITY_DOUBLE="$folder/double.safetensors" "$1"
