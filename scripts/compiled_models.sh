#!/usr/bin/env bash
# The table of compiled Python modules in docs/models.md. --help: bench/compiled/compare.py.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
python=${STOKER_PYTHON:-$root/.deps/venv/bin/python}
command -v "$python" >/dev/null || die "no $python: run scripts/deps.sh --python, or set STOKER_PYTHON"
exec "$python" "$root/bench/compiled/compare.py" --bin "$root/build/release/bin" --folder "$root/build/compiled" "$@"
