# shellcheck shell=sh
# Sourced, for the tests that need Python packages.

# choose_python PYTHON VARIABLE: sets $python to PYTHON, which VARIABLE of the environment chooses, and $folder
# to an empty folder that is removed on exit. Exits with code 77 if PYTHON is no program.
choose_python() {
  python=$1 variable=$2
  if ! command -v "$python" >/dev/null; then
    echo "skipped: there is no $python (set $variable)"
    exit 77
  fi
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  export PYTHONDONTWRITEBYTECODE=1
}

# require_modules MODULES: exits with code 77 if $python cannot import them.
require_modules() {
  if ! reason=$("$python" -c "import $1" 2>&1); then
    echo "skipped: $python cannot import $1 (set $variable): $(echo "$reason" | tail -n 1)"
    exit 77
  fi
}

# choose_peers PARITY_FOLDER: the Python with the packages of requirements-*.txt is STOKER_TRANSFORMERS_PYTHON,
# default that of deps.sh --peers, or of STOKER_PYTHON, or python3.
choose_peers() {
  peers=$1/../../.deps/venv-peers/bin/python
  [ -x "$peers" ] || peers=${STOKER_PYTHON:-python3}
  choose_python "${STOKER_TRANSFORMERS_PYTHON:-$peers}" 'STOKER_TRANSFORMERS_PYTHON, or run scripts/deps.sh --peers'
}

choose_pytorch() {
  choose_python "${STOKER_PYTHON:-python3}" STOKER_PYTHON
}

# run_steps [-- STEP]…: see steps.py in $here. Exits with its code if that is not 0.
run_steps() {
  # shellcheck disable=SC2154  # `here` is set by the caller
  "$python" "$here/steps.py" "$variable" "$@" || exit $?
}
