#!/bin/sh
# run_peft.sh PARITY_TEST: compares adapters with PEFT, with random configurations of each model_type. See
# transformers.sh.
set -eu
modules='torch, torchvision, transformers, peft, safetensors.torch'
. "$(dirname "$0")/transformers.sh"
"$python" "$here/make_peft.py" "$folder" "$count"
STOKER_PARITY_PEFT="$folder" "$1" --gtest_filter='*PeftParityTest.*' --gtest_brief=1
"$python" "$here/check_peft.py" "$folder"
