#!/usr/bin/env bash
# Checks that need no build: formatting, include direction, module diagram, scripts, documents,
# words, file access, tests that test nothing, log events, mutants.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

check_format() { git ls-files -z '*.h' '*.cc' '*.cu' | xargs -0 -r clang-format --dry-run -Werror; }

step "Check the format (scripts/format.sh applies it)" check-format check_format
step "Check the direction of includes" check-includes cmake -DROOT="$root" -DUNUSED=ON -P cmake/include_direction.cmake
step "Check the module diagram" check-modules scripts/draw_modules.py --check
step "Check the scripts" check-scripts tests/project/check_scripts.sh "$root"
step "Check the documents" check-documents tests/project/check_documents.sh "$root"
step "Check the words" check-words tests/project/check_words.sh "$root"
step "Check the access to files of runs" check-file-access tests/project/check_file_access.sh "$root"
step "Check the tests" check-tests tests/project/check_tests.py "$root"
step "Check the log events" check-log-events tests/project/check_log_events.py "$root"
step "Check the figures of README.md" check-figures bench/check_figures.py --check
step "Check the mutants" check-mutants scripts/mutants.sh --check
