#!/usr/bin/env bash
# ring_model_test.sh ROOT: checks the ring's protocol (ring_model.pml) with spin, with each fault,
# and that spin finds an error in each mutation. Prints the number of states. Exit code 77: spin or a
# C compiler is not available.
#
# At most two preemptions; with STOKER_FAULT_TESTS=full any number, except for REMOVE, which needs more than 16 GB: six. That takes
# an hour and 12 GB.
set -euo pipefail
root=$1
model=$root/tests/shared/ring/ring_model.pml
for tool in spin cc; do
  command -v "$tool" >/dev/null || {
    echo "$tool is not installed; skipped"
    exit 77
  }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# Every function that the model names must exist.
while read -r class function; do
  grep -qE "\b$class\b.*::$function\(|^ .*\b$function\(" "$root"/shared/ring/mapped_ring*.{h,cc} 2>/dev/null ||
    fail "ring_model.pml names $class::$function, which does not exist"
done < <(grep -oE '\b[A-Z][A-Za-z]+::[a-z_]+' "$model" | sort -u | sed 's/::/ /')

spin -a "$model"
cc -O1 -DSAFETY -DNOFAIR -DBCS -o bounded pan.c
faults=(NO_FAULT KILL REMOVE CLOSE ABANDON)
number_of() { awk -v name="$1" '$1 == "#define" && $2 == name { print $3 }' "$model"; }

explore() { FAULT=$(number_of "$2") MUTATION=$3 "./$1" -m100000 -w20 "${@:4}"; }  # PROGRAM FAULT MUTATION ARGUMENT…

# check PROGRAM FAULT MUTATION ARGUMENT…: prints the number of states; fails if there is an error.
check() {
  local output
  output=$(explore "$@")
  [[ $output != *"Search not completed"* && $output == *"errors: 0"* ]] || return 1
  awk '/states, stored/ { printf "%d\n", $1 }' <<<"$output"
}

for fault in "${faults[@]}"; do
  states=$(check bounded "$fault" 0 -L2) || fail "error with $fault; to see it, run in $model's folder:" \
    "  spin -a ring_model.pml && cc -DSAFETY -DBCS -o pan pan.c && FAULT=$(number_of "$fault") ./pan -L2; ./pan -r"
  echo "$fault: $states states with at most 2 preemptions"
done
mutations=0
while read -r _ name number _ fault _; do
  output=$(explore bounded "${fault%;}" "$number" -L2) || true
  [[ $output =~ errors:\ [1-9] ]] || fail "mutation $name is not found with ${fault%;}"
  mutations=$((mutations + 1))
done < <(grep -E '^#define [A-Z_]+ +[0-9]+ +/\* [A-Z_]+; ' "$model")
((mutations > 0)) || fail "no mutations in $model"
echo "mutations: all $mutations found"

if [[ ${STOKER_FAULT_TESTS:-} == full ]]; then
  cc -O2 -DSAFETY -DNOFAIR -DCOLLAPSE -DMEMLIM=12000 -o exhaustive pan.c
  cc -O2 -DSAFETY -DNOFAIR -DBCS -DCOLLAPSE -DMEMLIM=12000 -o deep pan.c
  for fault in "${faults[@]}"; do
    case $fault in
      REMOVE) program=deep arguments=(-L6) extent='with at most 6 preemptions' ;;
      *) program=exhaustive arguments=() extent='all interleavings' ;;
    esac
    states=$(check "$program" "$fault" 0 -w26 "${arguments[@]}") || fail "error with $fault, or not enough memory"
    echo "$fault: $states states, $extent"
  done
fi
