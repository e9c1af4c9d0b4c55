#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with Clang, runs each for a while and stores the findings.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/fuzz.sh [SECONDS [FORMAT…]]

Runs the target of each FORMAT (default: all) for SECONDS (default: 60) under AddressSanitizer and UBSan, from the
seeds of its tests and the corpus of earlier runs (build/fuzz/corpus). An input that causes a failure ends the
run and is stored in build/fuzz/found; fix the bug and move the file to tests/fuzz/regressions/FORMAT/, which every test
run reads. Requires the Debian packages clang and libclang-rt-14-dev.
HELP
  exit 0
fi
seconds=${1:-60}
shift || true
cd "$root"

build() {
  cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" \
    -DCMAKE_CXX_COMPILER="${STOKER_FUZZ_COMPILER:-clang++}" -DCMAKE_C_COMPILER="${STOKER_FUZZ_COMPILER:-clang++}" \
    -DSTOKER_FUZZ=ON -DSTOKER_SANITIZE=address,undefined -DSTOKER_TORCH=OFF -DSTOKER_TESTS=OFF -DSTOKER_BENCH=OFF
  cmake --build build/fuzz --target fuzz
  build/fuzz/bin/write_seeds build/fuzz/seeds
}

# Scratch files of the targets are stored in memory.
scratch=$(mktemp -d /dev/shm/stoker-fuzz-XXXXXX 2>/dev/null || mktemp -d)
trap 'rm -rf "$scratch"' EXIT

run_format() {
  mkdir -p "build/fuzz/corpus/$1" "build/fuzz/found/$1"
  TMPDIR=$scratch "build/fuzz/bin/fuzz_$1" -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=1024 \
    -malloc_limit_mb=256 -print_final_stats=1 -artifact_prefix="build/fuzz/found/$1/" \
    "build/fuzz/corpus/$1" "build/fuzz/seeds/$1"
}

step "Build the fuzz targets" fuzz-build build
if (($# == 0)); then
  for folder in build/fuzz/seeds/*/; do set -- "$@" "$(basename "$folder")"; done
fi
for format in "$@"; do
  step "Fuzz $format for $seconds s" "fuzz-$format" run_format "$format"
done
