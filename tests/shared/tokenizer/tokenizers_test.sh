#!/usr/bin/env bash
# tokenizers_test.sh ARGUMENT…: runs tokenizers_test.py with STOKER_PYTHON. Exit code 77: there is none.
set -euo pipefail
if [[ -z ${STOKER_PYTHON:-} ]]; then
  echo "skipped: STOKER_PYTHON is not set"
  exit 77
fi
exec "$STOKER_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/tokenizers_test.py" "$@"
