#!/usr/bin/env bash
# Shows that the packages of a commit have the same bytes wherever they are built.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/reproducible.sh [COMMIT]

Builds the packages of COMMIT (default: HEAD) twice and compares them byte for byte: in folders of different names, with
LibTorch in .deps and elsewhere, with different umasks, time zones and languages. Compiles everything twice, without
ccache; STOKER_CCACHE=1 uses it, which only tests linking and packing. Needs LibTorch in .deps (scripts/deps.sh),
dpkg-dev and patchelf.
HELP
  exit 0
fi
cd "$root"
commit=$(git rev-parse --verify "${1:-HEAD}^{commit}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT  # unless the packages differ
[[ -n ${STOKER_CCACHE:-} ]] || export CCACHE_DISABLE=1

# build_in FOLDER UMASK ZONE LANGUAGE LIBTORCH: LIBTORCH is the folder into which libtorch is copied.
build_in() {
  git clone -q "$root" "$1"
  git -C "$1" checkout -q "$commit"
  mkdir -p "$5"
  cp -a --reflink=auto "$root/.deps/libtorch" "$5"
  (umask "$2" && env TZ="$3" LC_ALL="$4" LIBTORCH_DIR="$5/libtorch/torch" "$1/scripts/package.sh")
}
first=$work/a
second=$work/another-and-longer-folder
step "Build in the first folder" reproducible-1 build_in "$first" 022 UTC C "$first/.deps"
step "Build in the second folder" reproducible-2 build_in "$second" 077 Asia/Tokyo C.UTF-8 "$work/opt"

different=0
for file in "$first"/build/release/packages/*.{deb,tar.gz,whl}; do
  other="$second/build/release/packages/$(basename "$file")"
  if cmp "$file" "$other"; then
    sha256sum "$file" | sed "s|  .*/|  |"
  else
    different=1
  fi
done
if ((different)); then
  trap - EXIT
  die "the packages of $commit depend on where they were built; both are in $work"
fi
