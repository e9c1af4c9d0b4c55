# shellcheck shell=sh
# Sourced, with the modules to import in $modules: sets $python to a Python with them, or exits with 77;
# $here, $count (configurations of each model_type: 3, with STOKER_PARITY=all 50), and $folder, an empty
# folder. STOKER_TRANSFORMERS_PYTHON is a Python with the packages of requirements-transformers.txt;
# default that of STOKER_PYTHON, or python3.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
require_python "${STOKER_TRANSFORMERS_PYTHON:-${STOKER_PYTHON:-python3}}" STOKER_TRANSFORMERS_PYTHON "$modules"
if [ "${STOKER_PARITY:-}" = all ]; then count=50; else count=3; fi
