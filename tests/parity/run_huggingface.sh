#!/bin/sh
# run_huggingface.sh PARITY_TEST BIN: compares gpt2 and llama with transformers, with random
# configurations of each model_type: 3, with STOKER_PARITY=all 50; and loads what the programs in BIN
# train and export. Exit code 77: transformers is not
# available. Set STOKER_TRANSFORMERS_PYTHON to a Python with the packages of
# requirements-transformers.txt; default that of STOKER_PYTHON, or python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${STOKER_TRANSFORMERS_PYTHON:-${STOKER_PYTHON:-python3}}
if ! reason=$("$python" -c 'import torch, transformers, safetensors.torch' 2>&1); then
  echo "skipped: $python cannot import torch, transformers and safetensors (set STOKER_TRANSFORMERS_PYTHON):"
  echo "$reason" | tail -n 1
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PYTHONDONTWRITEBYTECODE=1
if [ "${STOKER_PARITY:-}" = all ]; then count=50; else count=3; fi
"$python" "$here/make_huggingface.py" "$folder" "$count"
STOKER_PARITY_HUGGINGFACE="$folder" "$1" --gtest_filter='*HuggingFaceParityTest.*' --gtest_brief=1
"$python" "$here/check_huggingface.py" "$folder"
"$python" "$here/check_exported_run.py" "$2" "$folder/run"
