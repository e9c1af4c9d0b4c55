# shellcheck shell=sh
# Sourced, for the tests that need Python packages.

# require_python PYTHON VARIABLE MODULES: sets $python to PYTHON, which VARIABLE of the environment chooses, and
# $folder to an empty folder that is removed on exit. Exits with code 77 if it cannot import the modules.
require_python() {
  python=$1
  if ! reason=$("$python" -c "import $3" 2>&1); then
    echo "skipped: $python cannot import $3 (set $2):"
    echo "$reason" | tail -n 1
    exit 77
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  export PYTHONDONTWRITEBYTECODE=1
}

# require_peers PARITY_FOLDER MODULES: the Python with the packages of requirements-*.txt is
# STOKER_TRANSFORMERS_PYTHON, default that of deps.sh --peers, or of STOKER_PYTHON, or python3.
require_peers() {
  peers=$1/../../.deps/venv-peers/bin/python
  [ -x "$peers" ] || peers=${STOKER_PYTHON:-python3}
  require_python "${STOKER_TRANSFORMERS_PYTHON:-$peers}" 'STOKER_TRANSFORMERS_PYTHON, or run scripts/deps.sh --peers' "$2"
}

require_pytorch() {
  require_python "${STOKER_PYTHON:-python3}" STOKER_PYTHON 'torch, safetensors.torch'
}
