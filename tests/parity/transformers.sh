# shellcheck shell=sh
# Sourced, with the modules to import in $modules: sets $python to a Python with them, or exits with 77;
# $here, $count (configurations of each model_type: STOKER_PARITY_COUNT, default 50), and $folder, an empty
# folder. STOKER_TRANSFORMERS_PYTHON is a Python with the packages of requirements-*.txt; default that of
# deps.sh --peers, or of STOKER_PYTHON, or python3.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
peers=$here/../../.deps/venv-peers/bin/python
[ -x "$peers" ] || peers=${STOKER_PYTHON:-python3}
require_python "${STOKER_TRANSFORMERS_PYTHON:-$peers}" STOKER_TRANSFORMERS_PYTHON "$modules"
count=${STOKER_PARITY_COUNT:-50}
