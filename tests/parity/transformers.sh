# shellcheck shell=sh
# Sourced: sets $python to a Python with transformers and others; $here, $count (configurations of each
# model_type: STOKER_PARITY_COUNT, default 5), and $folder, an empty folder.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$here/python_or_skip.sh"
choose_peers "$here"
count=${STOKER_PARITY_COUNT:-5}
