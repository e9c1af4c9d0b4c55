#!/usr/bin/env bash
# Applies each patch of tests/mutants, a small harmful change, and checks that the tests notice it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/mutants.sh [--check | --status] [NAME…]

Applies each of the small harmful changes of tests/mutants to a copy of the tracked files, without a NAME all
of them, builds what changes, and runs the test that must fail. Prints one line per change:

  noticed    the test failed, or did not end within ten times its usual time and a minute
  SURVIVED   the test passed, or no test is named: a user can get this fault although all tests pass
  BROKEN     nothing is known: the change cannot be applied or compiled, or its test fails or is skipped without it

and exits with 1 if a line is not "noticed". Takes several hours on two cores. Can be interrupted, and continued on
another machine: results are in tests/mutants/results.tsv, to be committed, and what was noticed or survived is not
run again until the patch changes. Delete lines of that file to run again after changes of the product or the tests.
Output of a test: build/mutants/NAME.log

--check builds and runs nothing: verifies that every patch applies to the current files, and that its test exists.
--status only counts the results.

A patch NAME.patch changes one place of the product, not of a test. NAME says what is wrong, in the form
retention-keeps-one-less. Its first line says what a user suffers, its second one names the test:

  test: PROGRAM FILTER     a program of build/release/tests and its --gtest_filter; prefer the fastest test
  test: ctest NAME         a test of ctest that is no such program; everything is built for it
  test: none, REASON       no test is known that fails

followed by an empty line and the output of `git diff`.
HELP
  exit 0
fi
cd "$root"
only=
if [[ ${1:-} == --check || ${1:-} == --status ]]; then
  only=$1
  shift
fi
names=("$@")
if ((!${#names[@]})); then mapfile -t names < <(basename -s .patch tests/mutants/*.patch); fi
for name in "${names[@]}"; do [[ -f tests/mutants/$name.patch ]] || die "there is no tests/mutants/$name.patch"; done

# list_tests: one line "NAME PROGRAM FILTER" per patch, or "NAME none REASON". Invalid headers have no PROGRAM.
list_tests() {
  awk 'FNR == 1 { name = FILENAME; sub(/.*\//, "", name); sub(/\.patch$/, "", name); is_valid = NF > 2 && /\.$/ }
       FNR == 2 { is_valid = is_valid && /^test: (none, [^ ].*|[a-z0-9_]+ [^ ]+)$/; sub(/^test: /, ""); sub(/^none,/, "none"); test = $0 }
       FNR == 3 { print name, (is_valid && NF == 0 ? test : "") }' "${names[@]/#/tests/mutants/}" </dev/null
}
names=("${names[@]/%/.patch}")
listed=$(list_tests)
names=("${names[@]%.patch}")

# existing: the programs and tests that the files below tests/ define, as "program NAME" and "test SUITE.NAME".
existing() {
  find tests -name CMakeLists.txt -exec cat {} + | tr '\n' ' ' | grep -oE 'stoker_test\( *[a-z0-9_]+' | sed 's/.*[( ]/program /'
  find tests -name CMakeLists.txt -exec cat {} + | grep -oE 'add_test\(NAME [A-Za-z0-9_.]+' | sed 's/.* /test /'
  echo program ctest
  grep -rhoE --include='*.cc' '^ *TEST(_F|_P)?\([A-Za-z0-9_]+, [A-Za-z0-9_]+' tests | sed 's/.*(/test /; s/, /./'
}

check() {
  local name bad=0
  for name in "${names[@]}"; do
    [[ $name =~ ^[a-z0-9]+(-[a-z0-9]+)+$ ]] || { say "$name: the name is not in lower-case words" && bad=1; }
    git apply --check "tests/mutants/$name.patch" || bad=1
    (($(grep -c '^@@' "tests/mutants/$name.patch") == 1)) || { say "$name: changes more than one place" && bad=1; }
  done
  # Of parameterized tests the filter has PREFIX/ in front and /NAME behind.
  awk '$1 == "program" { programs[$2]; next }
       $1 == "test" { tests[$2]; next }
       NF < 3 { print $1 ": needs a line that ends with a full stop, a line \"test: …\", and an empty one"; bad = 1; next }
       $2 == "none" { next }
       !($2 in programs) { print $1 ": no CMakeLists.txt below tests/ has stoker_test(" $2; bad = 1 }
       { filter = $3; sub(/^[A-Za-z0-9_*]*\//, "", filter); sub(/\/.*/, "", filter)
         if (filter in tests) next
         gsub(/[.]/, "[.]", filter); gsub(/[*]/, ".*", filter)
         for (test in tests) if (test ~ "^" filter "$") next
         print $1 ": no test below tests/ matches " $3; bad = 1 }
       END { exit bad }' <(existing) <(printf '%s\n' "$listed") || bad=1
  return "$bad"
}
check || die "tests/mutants: see above"
if [[ $only == --check ]]; then
  say "${#names[@]} mutants apply; $(grep -c '^[^ ]* none ' <<<"$listed" || true) of them have no test"
  exit 0
fi

tree=$root/build/mutants/tree
results=$root/tests/mutants/results.tsv  # hash of the patch, name, verdict, commit and day, remark

# definition_of PROGRAM: its stoker_test(…) in the CMakeLists.txt.
definition_of() {
  find "$root/tests" -name CMakeLists.txt -exec cat {} + | awk -v RS=')' -v begin="stoker_test[(][[:space:]]*$1[[:space:]]" '$0 ~ begin'
}
# targets_of PROGRAM: what has to be built for it.
targets_of() {
  if [[ $1 == ctest ]]; then printf 'all\n' && return; fi
  printf '%s\n' "$1"
  if [[ $(definition_of "$1") == *system_fixture* ]]; then printf 'programs\nminimal-run\n'; fi
}
copy_tree() {
  local commit
  commit=$(git stash create)  # with changes that are not committed
  if [[ -e $tree/.git ]]; then
    git -C "$tree" checkout --quiet --force --detach "${commit:-HEAD}"
  else
    git worktree prune
    git worktree add --quiet --detach "$tree" "${commit:-HEAD}"
  fi
  if [[ -e .deps ]]; then ln -sfn "$(readlink -f .deps)" "$tree/.deps"; fi
}
# run_test PROGRAM FILTER SECONDS
run_test() {
  cd "$tree/build/release/tests" || return
  exec 9>&-  # a process that the test leaves behind must not keep the lock
  if [[ $1 == ctest ]]; then
    ctest --test-dir .. --timeout "$3" -R "^$2\$"
    return
  fi
  if [[ $(definition_of "$1") == *exported_zoo* ]]; then
    export STOKER_PYTHON=${STOKER_PYTHON:-$tree/.deps/venv/bin/python}
    "$tree/tests/python/export_zoo.sh" "$tree" "$PWD/exported" || return
  fi
  timeout --kill-after=10 "$3" "./$1" --gtest_filter="$2"
}
hash_of() { sha256sum "tests/mutants/$1.patch" | cut -c 1-16; }
# verdict_of NAME: that of the patch as it is now; none if it has to be run.
verdict_of() {
  awk -F '\t' -v hash="$(hash_of "$1")" -v name="$1" '$1 == hash && $2 == name { verdict = $3 }
    END { if (verdict != "BROKEN") print verdict }' "$results"
}
# record NAME VERDICT SECONDS [REMARK]
record() {
  local kept
  kept=$(awk -F '\t' -v name="$1" '$2 != name' "$results")
  printf '%s\n%s\t%s\t%s\t%s %s\t%s\n' "$kept" "$(hash_of "$1")" "$1" "$2" "$(git rev-parse --short=8 HEAD)" "$(date -u +%F)" "${4:-}" |
    sed '/^$/d' | sort -t $'\t' -k 2 >"$results.new"
  mv "$results.new" "$results"
  printf '%-9s %5d s  %s%s\n' "$2" "$3" "$1" "${4:+ ($4)}"
}

print_results() {
  local name survived=0 broken=0
  for name in "${names[@]}"; do
    case $(verdict_of "$name") in
      SURVIVED) survived=$((survived + 1)) ;;
      '') broken=$((broken + 1)) ;;
    esac
  done
  say "$((${#names[@]} - survived - broken)) noticed, $survived survived, $broken broken or not run: $results"
  ((survived + broken == 0))
}
if [[ $only == --status ]]; then
  print_results
  exit
fi

mkdir -p "$(dirname "$tree")"
exec 9>"$tree.lock"
flock -n 9 || die "another one runs, which changes the same tree"
pending=() targets=()
while read -r name program filter; do
  verdict=$(verdict_of "$name")
  if [[ $verdict == SURVIVED ]]; then printf '%-9s earlier  %s\n' SURVIVED "$name"; fi
  if [[ -n $verdict ]]; then continue; fi
  pending+=("$program $filter $name")
  if [[ $program != none ]]; then mapfile -t -O "${#targets[@]}" targets < <(targets_of "$program"); fi
done <<<"$listed"
mapfile -t pending < <(printf '%s\n' "${pending[@]}" | sort)
mapfile -t targets < <(printf '%s\n' "${targets[@]}" | sort -u)

if ((${#targets[@]})) && [[ -n ${targets[0]} ]]; then
  copy_tree
  "$tree/scripts/build.sh" release "${targets[@]}"
fi

changed=''  # the programs may contain a mutant
declare -A remarks limits  # of "PROGRAM FILTER" without a change
for item in "${pending[@]}"; do
  name=${item##* } test=${item% *}
  if [[ -z $item ]]; then continue; fi
  if [[ $test == none\ * ]]; then
    record "$name" SURVIVED 0 "${test#none }"
    continue
  fi
  read -r program filter <<<"$test"
  log=$root/build/mutants/$name.log
  began=$SECONDS
  if [[ -z ${limits[$test]:-} ]]; then
    # Without the change that was tested before.
    if [[ -n $changed ]]; then
      mapfile -t targets < <(targets_of "$program")
      "$tree/scripts/build.sh" release "${targets[@]}" >"$log" 2>&1 </dev/null
      changed=''
      began=$SECONDS
    fi
    if ! (run_test "$program" "$filter" 1800) >"$log" 2>&1 </dev/null; then
      remarks[$test]="the test fails without the change"
    elif ! grep -qE '^\[       OK \]| Passed ' "$log"; then
      remarks[$test]="the test is skipped or does not exist"
    fi
    limits[$test]=$((60 + 10 * (SECONDS - began)))
    began=$SECONDS
  fi
  if [[ -n ${remarks[$test]:-} ]]; then
    record "$name" BROKEN 0 "${remarks[$test]}"
    continue
  fi
  git -C "$tree" apply "$root/tests/mutants/$name.patch"
  mapfile -t targets < <(targets_of "$program")
  if ! "$tree/scripts/build.sh" release "${targets[@]}" >"$log" 2>&1 </dev/null; then
    record "$name" BROKEN $((SECONDS - began)) "it does not build"
  elif (run_test "$program" "$filter" "${limits[$test]}") >"$log" 2>&1 </dev/null; then
    record "$name" SURVIVED $((SECONDS - began)) "$test"
  else
    record "$name" noticed $((SECONDS - began))
  fi
  git -C "$tree" checkout --quiet -- .
  changed=yes
done

print_results
