# Sourced by the other scripts: prints one line per step with its duration and writes the output to
# a log file.
#
#   step "Build the release preset" build cmake --build …     writes its output to build/logs/build.log
#
# If a step fails, the script prints the end of the log and its path, and exits.
# shellcheck shell=bash disable=SC2034  # used by other scripts

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/stoker
logs=$root/build/logs

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# now: seconds since the Unix epoch with a fraction. seconds_since START: elapsed time as text.
now() { date +%s.%N; }
seconds_since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.1f s", to - from }'; }

# On a terminal, updates the line once a second with the progress of ninja or ctest. Exits with its
# parent.
show_progress() {
  local title=$1 log=$2 parent=$3 count
  while kill -0 "$parent" 2>/dev/null; do
    sleep 1
    count=$(grep -oE '^(\[[0-9]+/[0-9]+\]| *[0-9]+/[0-9]+ Test)' "$log" 2>/dev/null | tail -n 1 | tr -dc '0-9/') || true
    printf '\r%-52s %s ' "$title" "$count"
  done
}

# step TITLE LOG-NAME COMMAND…: runs the command, prints the title and the duration.
step() {
  local title=$1 log=$logs/$2.log began progress='' status=0
  shift 2
  mkdir -p "$logs"
  began=$(now)
  printf '%-52s ' "$title"
  : >"$log"
  if [[ -t 1 ]]; then
    show_progress "$title" "$log" $$ &
    progress=$!
  fi
  set +e  # `step || …` would disable set -e in a function; the subshell enables it again
  (
    set -e
    "$@"
  ) >"$log" 2>&1
  status=$?
  set -e
  if [[ -n $progress ]]; then
    kill "$progress" 2>/dev/null || true
    wait "$progress" 2>/dev/null || true
    printf '\r\033[K%-52s ' "$title"
  fi
  if ((status == 0)); then
    seconds_since "$began"
    printf '\n'
    return 0
  fi
  printf 'FAILED after %s\n' "$(seconds_since "$began")"
  tail -n "${STOKER_LOG_LINES:-60}" "$log" >&2
  printf '%s: "%s" failed (exit code %d); the whole log: %s\n' "$(basename "$0")" "$title" "$status" "$log" >&2
  exit "$status"
}
