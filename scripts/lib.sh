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

# skipped_tests JUNIT-FILE…: one line per reason, with the number of skipped tests and the first of
# them. GoogleTest prints the reason after "FILE:LINE: Skipped"; the last line of a script is its
# reason.
skipped_tests() {
  awk '
    function add() {
      if (!skipped) return
      reason = printed != "" ? printed : last
      gsub(/&lt;/, "<", reason); gsub(/&gt;/, ">", reason); gsub(/&quot;/, "\"", reason)
      gsub(/&apos;/, "\x27", reason); gsub(/&amp;/, "\\&", reason)
      if (!(reason in count)) { order[++reasons] = reason; first[reason] = name }
      ++count[reason]
    }
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/" .*/, "", name)
                   skipped = 0; printed = last = ""; due = 0 }
    /<skipped/ { skipped = 1 }
    skipped && due { printed = $0; due = 0; next }
    skipped && /^[^ ]+:[0-9]+: Skipped$/ { due = 1; next }
    { line = $0; sub(/.*<system-out>/, "", line); if (line !~ /^[[:space:]]*(<.*)?$/) last = line }
    /<\/testcase>/ { add() }
    END { for (i = 1; i <= reasons; ++i)
            printf("%d skipped (%s%s): %s\n", count[order[i]], first[order[i]], (count[order[i]] > 1 ? ", …" : ""), order[i]) }' "$@"
}
