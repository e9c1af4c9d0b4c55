#!/bin/sh
# tokenizers_test.sh SCRIPT MODULES STOKER_TOKENIZE ROOT: runs a Python script of this folder, which imports
# MODULES, with the Python that tests/parity/transformers.sh has. STOKER_TOKENIZER_MEGABYTES is the size of
# the text: from 5 on it has all characters; the default 1.5 has a sample of them. Exit code 77: a package
# is missing.
set -eu
scripts=$(dirname "$0")
parity=$(cd "$scripts/../../parity" && pwd)
# shellcheck source=tests/parity/python_or_skip.sh
. "$parity/python_or_skip.sh"
choose_peers "$parity"
require_modules "$2"
"$python" "$scripts/$1" "$3" "$4" "${STOKER_TOKENIZER_MEGABYTES:-1.5}"
