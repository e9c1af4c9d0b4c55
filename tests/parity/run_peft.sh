#!/bin/sh
# run_peft.sh PARITY_TEST: compares adapters with PEFT, with random configurations of each model_type:
# 3, with STOKER_PARITY=all 50. Exit code 77: PEFT is not available. Set STOKER_TRANSFORMERS_PYTHON to a
# Python with the packages of requirements-transformers.txt; default that of STOKER_PYTHON, or python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${STOKER_TRANSFORMERS_PYTHON:-${STOKER_PYTHON:-python3}}
if ! reason=$("$python" -c 'import torch, transformers, peft, safetensors.torch' 2>&1); then
  echo "skipped: $python cannot import torch, transformers, peft and safetensors (set STOKER_TRANSFORMERS_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
if [ "${STOKER_PARITY:-}" = all ]; then count=50; else count=3; fi
"$python" "$here/make_peft.py" "$folder" "$count"
STOKER_PARITY_PEFT="$folder" "$1" --gtest_filter='*PeftParityTest.*' --gtest_brief=1
"$python" "$here/check_peft.py" "$folder"
