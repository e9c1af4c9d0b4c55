#!/usr/bin/env bash
# Builds the fuzz targets of tests/fuzz with Clang, runs each for a while and stores the findings and,
# with --merge, inputs with new coverage.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/fuzz.sh [--merge | --cost] [SECONDS [FORMAT…]]

Runs the target of each FORMAT (default: all) for SECONDS (default: 60; 0: not at all) under AddressSanitizer and UBSan,
from the seeds of its tests, its corpus (tests/fuzz/corpus/FORMAT.tar.gz) and that of earlier runs (build/fuzz/corpus). An input that
causes a failure ends the run and is stored in build/fuzz/found; fix the bug and move the file to
tests/fuzz/regressions/FORMAT/. Every test run reads these and the corpus in tests/fuzz. Requires the Debian packages clang
and libclang-rt-14-dev.

  --merge  then replaces tests/fuzz/corpus/FORMAT.tar.gz by the smallest inputs of both corpora that cover what the seeds do
           not, at most 32 KiB; fails if there are none. Inputs named recorded-* (tests/fuzz/record_producers.py) and handmade-*
           remain, and count
  --cost   instead searches for inputs that need the most memory or time, or write the most, for their size, with counted
           allocations and without sanitizers; fails if a limit of docs/security.md is exceeded. The inputs are stored in
           build/fuzz/cost; add their kind to tests/fuzz/worst_inputs.cc. Then measures the worst known inputs of the largest
           size that is accepted. Also the FORMATs config, request and json
HELP
  exit 0
fi
merge=''
cost=''
case ${1:-} in
  --merge)
    merge=yes
    shift
    ;;
  --cost)
    cost=yes
    shift
    ;;
esac
seconds=${1:-60}
shift || true
cd "$root"

if [[ $cost ]]; then
  scripts/build.sh release fuzz_cost
  step "Search for costly inputs, $seconds s each" fuzz-cost build/release/tests/fuzz_cost "$seconds" build/fuzz/cost "$@"
  build/release/tests/fuzz_cost --table "$@" | tee build/fuzz/cost/table.md
  exit
fi

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

# run_target FORMAT ARGUMENT…
run_target() {
  mkdir -p "build/fuzz/corpus/$1" "build/fuzz/found/$1"
  TMPDIR=$scratch "build/fuzz/bin/fuzz_$1" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -artifact_prefix="build/fuzz/found/$1/" "${@:2}"
}
# unpack_corpus FORMAT: to $scratch/stored-FORMAT.
unpack_corpus() {
  mkdir -p "$scratch/stored-$1"
  if [[ -e tests/fuzz/corpus/$1.tar.gz ]]; then tar -xzf "tests/fuzz/corpus/$1.tar.gz" -C "$scratch/stored-$1"; fi
}
run_format() {
  unpack_corpus "$1"
  run_target "$1" -max_total_time="$seconds" -print_final_stats=1 \
    "build/fuzz/corpus/$1" "build/fuzz/seeds/$1" "$scratch/stored-$1"
}

merge_format() {
  local merged=$scratch/merged-$1 kept=$scratch/kept-$1 bytes=0
  mkdir "$merged" "$kept"
  unpack_corpus "$1"
  cp "build/fuzz/seeds/$1"/seed-* "$merged"
  find "$scratch/stored-$1" \( -name 'recorded-*' -o -name 'handmade-*' \) -exec mv -t "$merged" {} +
  run_target "$1" -merge=1 "$merged" "$scratch/stored-$1" "build/fuzz/corpus/$1"
  rm "$merged"/seed-*
  while read -r size name; do
    bytes=$((bytes + size))
    mv "$merged/$name" "$kept/"
  done < <(find "$merged" \( -name 'recorded-*' -o -name 'handmade-*' \) -printf '%s %f\n')
  while read -r size name; do
    bytes=$((bytes + size))
    if ((bytes > 32768)); then break; fi
    mv "$merged/$name" "$kept/"
  done < <(find "$merged" -type f -printf '%s %f\n' | sort -n)
  [[ -n $(ls "$kept") ]] || die "no input covers more of $1 than its seeds; run it for longer"
  mkdir -p tests/fuzz/corpus
  find "$kept" -type f -printf '%f\0' | sort -z |
    tar --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -C "$kept" --null -T - -c |
    gzip -9n >"tests/fuzz/corpus/$1.tar.gz"
}

step "Build the fuzz targets" fuzz-build build
if (($# == 0)); then
  for folder in build/fuzz/seeds/*/; do set -- "$@" "$(basename "$folder")"; done
fi
for format in "$@"; do
  if [[ $seconds != 0 ]]; then step "Fuzz $format for $seconds s" "fuzz-$format" run_format "$format"; fi
  if [[ $merge ]]; then step "Merge the corpus of $format" "fuzz-merge-$format" merge_format "$format"; fi
done
if [[ $merge ]]; then du -bc tests/fuzz/corpus/*.tar.gz; fi
