#!/usr/bin/env bash
# Configures and builds one preset with ccache; prints only errors. Run scripts/deps.sh first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/build.sh [PRESET [TARGET…]]

Builds the targets (default: all) of PRESET: release (default), dev, asan, tsan, tsan-torch or tidy.
Object files are cached in ${XDG_CACHE_HOME:-~/.cache}/stoker/ccache. STOKER_JOBS is the number of
compilers that run in parallel (default: limited by cores and memory).
HELP
  exit 0
fi
preset=${1:-release}
shift || true
cd "$root"

export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
export CCACHE_BASEDIR=$root  # share cache entries between checkouts
export CCACHE_NOHASHDIR=1  # debug info has no build folder: -ffile-prefix-map
export CCACHE_SLOPPINESS=pch_defines,time_macros  # needed for precompiled headers
export CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-3G}
if [[ -z ${STOKER_COMPILER_LAUNCHER+set} ]] && command -v ccache >/dev/null; then
  export STOKER_COMPILER_LAUNCHER=ccache
fi

# One compiler per core, limited by memory: a file that includes LibTorch takes up to 2.4 GB.
jobs_that_fit() {
  local cores available limit used
  cores=$(nproc)
  available=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [[ $limit =~ ^[0-9]+$ ]]; then
    used=$(cat /sys/fs/cgroup/memory.current)
    if (((limit - used) / 1024 < available)); then available=$(((limit - used) / 1024)); fi
  fi
  local fit=$((available / 2400 / 1024))
  if ((fit < 1)); then fit=1; fi
  echo $((fit < cores ? fit : cores))
}
jobs=${STOKER_JOBS:-$(jobs_that_fit)}

step "Configure preset $preset" "configure-$preset" cmake --preset "$preset"
if (($#)); then targets=(--target "$@"); else targets=(); fi
step "Build preset $preset ($jobs at a time)" "build-$preset" \
  cmake --build --preset "$preset" -j "$jobs" "${targets[@]}"
