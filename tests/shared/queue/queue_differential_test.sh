#!/usr/bin/env bash
# queue_differential_test.sh TOOL: runs random schedules with stoker-queue-script (TOOL) and with
# TensorFlow's queues. Exit code 77: STOKER_TENSORFLOW_PYTHON (default python3) cannot import TensorFlow.
set -euo pipefail
python=${STOKER_TENSORFLOW_PYTHON:-python3}
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)' 2>/dev/null; then
  echo "set STOKER_TENSORFLOW_PYTHON to a Python that can import tensorflow; skipped"
  exit 77
fi
exec "$python" -B "$(dirname "$0")/queue_differential.py" "$1"
