# shellcheck shell=sh
# Sourced, with the modules to import in $modules: sets $python to a Python with them, or exits with 77;
# $here, $count (configurations of each model_type: STOKER_PARITY_COUNT, default 50), and $folder, an empty
# folder.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
require_peers "$here" "$modules"
count=${STOKER_PARITY_COUNT:-50}
