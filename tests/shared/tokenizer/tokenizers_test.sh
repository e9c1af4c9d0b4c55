#!/usr/bin/env bash
# tokenizers_test.sh SCRIPT ARGUMENT…: runs a Python script of this folder with STOKER_PYTHON. Exit code 77: there is none.
set -euo pipefail
if [[ -z ${STOKER_PYTHON:-} ]]; then
  echo "skipped: STOKER_PYTHON is not set"
  exit 77
fi
exec "$STOKER_PYTHON" "$(dirname "${BASH_SOURCE[0]}")/$1" "${@:2}"
