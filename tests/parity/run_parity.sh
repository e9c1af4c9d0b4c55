#!/bin/sh
# run_parity.sh PARITY_EXPORT PARITY_TEST: compares stoker with PyTorch. Exit code 77: PyTorch is not
# available. Set STOKER_PYTHON to the Python to use; default python3.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
require_pytorch
"$python" "$here/make_golden.py" "$folder/golden"
"$1" "$folder/checkpoints"
"$python" "$here/check_parity.py" "$here/golden" "$folder/golden" "$folder/checkpoints"
if "$python" -c 'import torchvision' 2>/dev/null; then
  "$1" --names >"$folder/names"
  "$python" "$here/check_torchvision.py" "$here/golden" "$folder/names"
else
  echo "not compared with torchvision: $python cannot import it"
fi
"$python" "$here/make_evaluation.py" "$folder/evaluation"
# If torchvision is available, check that it still produces the inputs that parity_inputs_test uses.
if "$python" -c "import torchvision" 2>/dev/null; then
  "$python" "$here/make_inputs.py" "$folder/inputs"
  "$python" - "$here/golden/inputs/inputs.safetensors" "$folder/inputs/inputs.safetensors" <<'PYTHON'
import sys
from safetensors.torch import load_file
from torch.testing import assert_close

assert_close(load_file(sys.argv[2]), load_file(sys.argv[1]))
PYTHON
fi
"$python" "$here/make_steps.py" "$folder/steps.safetensors"
STOKER_PARITY_EVALUATION="$folder/evaluation" STOKER_PARITY_STEPS="$folder/steps.safetensors" \
  "$2" --gtest_filter='*EvaluationParityTest.*:StepParityTest.*'
