#!/usr/bin/env bash
# The table of compiled Python modules in docs/models.md.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/compiled_models.sh [FOLDER [OPTION…] [MODULE…]]

Exports the modules of bench/compiled/modules.py with stoker-export and trains them: stokerd with the compiled module,
PyTorch with torch.compile and without, and stokerd with its own model of the same shape. The rows alternate. Prints a
Markdown table. Takes about 40 minutes on 2 cores. Needs scripts/deps.sh --python and scripts/build.sh release.

FOLDER keeps the packages (default: build/compiled). Options: --rounds N (5), --steps N (30), --threads N (2).
HELP
  exit 0
fi
folder=${1:-$root/build/compiled}
shift || true
exec "${STOKER_PYTHON:-$root/.deps/venv/bin/python}" "$root/bench/compiled/compare.py" "$root/build/release/bin" "$folder" "$@"
