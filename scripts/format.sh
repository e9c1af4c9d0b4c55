#!/usr/bin/env bash
# Applies .clang-format to all C++ files of the repository, or to those given as arguments.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
if (($#)); then
  clang-format -i "$@"
else
  git ls-files -z '*.h' '*.cc' '*.cu' | xargs -0 -r clang-format -i
fi
