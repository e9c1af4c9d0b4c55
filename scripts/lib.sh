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
  # The subshell enables set -e for a function; but in a condition, as in `step … || …`, bash ignores it there: use a program.
  set +e
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

# skipped_tests JUNIT-FILE…: one line per reason, with the number of skipped tests and the first of them. Fails if
# tests/expected_skips.txt does not expect one of them here.
skipped_tests() { "$root/tests/project/check_skips.py" "$@"; }

# describe_machine: its processor and cores, and how long it takes to compile a fixed file, so that durations of different machines
# can be compared.
describe_machine() {
  local began seconds
  began=$(now)
  "${CXX:-c++}" -std=c++20 -O2 -x c++ -c -o /dev/null - <<'CODE'
#include <iostream>
#include <map>
#include <regex>
#include <string>
int main(int, char** argv) {
  std::map<std::string, int> counts;
  const std::regex word("([a-z]+)([0-9]*)");
  for (std::string line; std::getline(std::cin, line);)
    for (std::sregex_iterator i(line.begin(), line.end(), word), end; i != end; ++i) ++counts[(*i)[1]];
  for (const auto& [name, count] : counts) std::cout << name << ' ' << count << argv[0] << '\n';
}
CODE
  seconds=$(seconds_since "$began")
  awk -F ': *' -v cores="$(nproc)" -v seconds="$seconds" '
    /^(model name|cpu family|model|flags)/ && !($1 in seen) { gsub(/[ \t]+$/, "", $1); seen[$1] = $2 }
    END { printf "%s, family %s model %s%s, %d cores; compiles a fixed file in %s\n", seen["model name"], seen["cpu family"],
          seen["model"], seen["flags"] ~ /avx512f/ ? ", AVX-512" : seen["flags"] ~ /avx2/ ? ", AVX2" : "", cores, seconds }' /proc/cpuinfo
}

# run_tests PRESET CTEST-ARGUMENT…: runs tests of a build; scripts/test_results.py reads the results in build/PRESET/test-results.
run_tests() {
  local preset=$1 results=$root/build/$1/test-results
  shift
  rm -rf "$results"
  mkdir -p "$results"
  export STOKER_PYTHON=${STOKER_PYTHON:-$root/.deps/venv/bin/python}
  export STOKER_TENSORFLOW_PYTHON=${STOKER_TENSORFLOW_PYTHON:-$root/.deps/venv-tensorflow/bin/python}
  export GTEST_RANDOM_SEED=${GTEST_RANDOM_SEED:-1}  # of the order of the cases
  step "Run the tests of preset $preset" "test-$preset" ctest --preset "$preset" --output-junit "$results/ctest.xml" "$@"
}

# report_tests [--all] FOLDER…: what happened to the tests with results in these folders. Fails if one has failed, if a skip is
# not expected, or if none ran. --all: what scripts/deps.sh installs is expected to be installed.
report_tests() {
  local all=() files=() status=0
  if [[ $1 == --all ]]; then
    all=(--all)
    shift
  fi
  mapfile -t files < <(find "$@" -name '*.xml' 2>/dev/null)
  skipped_tests "${all[@]}" "${files[@]}" || status=1
  "$root/scripts/test_results.py" --list 30 "$@" || status=1
  return "$status"
}
