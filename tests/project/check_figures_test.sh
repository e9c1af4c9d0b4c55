#!/usr/bin/env bash
# check_figures_test.sh ROOT: bench/check_figures.py rejects a README.md whose ranges leave out rows of the tables.
set -euo pipefail
root=${1:?give the root of the repository}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/bench" "$tree/docs"
fail() {
  printf 'check_figures_test: %s\n' "$*" >&2
  exit 1
}
reset() {
  cp "$root/bench/check_figures.py" "$tree/bench/"
  cp "$root/README.md" "$tree/"
  cp "$root/docs/benchmarks.md" "$tree/docs/"
}
check() { python3 "$tree/bench/check_figures.py" "$@"; }
expect_error() {
  local what=$1 expected=$2 output
  if output=$(check --check 2>&1); then fail "$what: was accepted"; fi
  [[ $output == *"$expected"* ]] || fail "$what: rejected, but without \"$expected\": $output"
}

reset
check --check

# A quarter of eager PyTorch's speed is four times its time.
sed -i '0,/^| mlp 1024, 1024, 1; 128 |/s//| slow | 1 | 5.0 | 0.25 | 1.0 | 1 % |\n&/' "$tree/docs/benchmarks.md"
expect_error 'a slower row' 'training step: eager PyTorch | 0.28 | 4.00 |'
check --write
check --check
grep -qF '| training step: eager PyTorch | 0.28 | 4.00 |' "$tree/README.md" || fail '--write writes another range'

# Columns: 30 ms, next to 10 ms of eager PyTorch.
reset
sed -i 's/^| lstm_lm, width 128/| slow | 30.0 (1 to 99) | 10.0 (9.0 to 11.0) | 10.0 |\n&/' "$tree/docs/benchmarks.md"
expect_error 'a slower model' 'training step: eager PyTorch | 0.28 | 3.00 |'

# Rows: another library that reads 2,634 photographs per second, next to 1,317 of stoker.
reset
sed -i '0,/^| simplejpeg |/s//| faster | 2,634 | | | |\n&/' "$tree/docs/benchmarks.md"
expect_error 'a faster library' 'decoding a photograph: other libraries | 0.36 | 2.00 |'

reset
sed -i 's/^| training step: eager PyTorch | 0.28 | [0-9.]* |/| training step: eager PyTorch | 0.28 | 0.91 |/' "$tree/README.md"
expect_error 'a range that leaves out rows' 'training step: eager PyTorch'
reset
sed -i '/^| stall by a checkpoint: memcpy/d' "$tree/README.md"
expect_error 'a missing figure' 'stall by a checkpoint: memcpy'
reset
sed -i '0,/| 1.10 · 1.19 |/s//| as fast |/' "$tree/docs/benchmarks.md"
expect_error 'a cell without a number' 'no number in the cell "as fast"'
