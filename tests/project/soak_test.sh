#!/usr/bin/env bash
# soak_test.sh ROOT [BIN]: tests whether scripts/soak.sh detects growing memory use. With BIN, the
# folder of the programs, it also runs a soak test of a few seconds with the real programs.
set -euo pipefail
root=${1:?give the root of the repository}
bin=${2:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'soak_test: %s\n' "$*" >&2
  [[ ! -e $scratch/out ]] || cat "$scratch/out" >&2
  exit 1
}
judge() { "$root/scripts/soak.sh" --judge "$scratch/looks" >"$scratch/out" 2>&1; }

# looks TRAINER-KIB-A-MINUTE READER-FILES-A-MINUTE: an hour of measurements. The worker process is
# replaced after 30 minutes, and the trainer takes 50 MiB more in its first five minutes.
looks() {
  awk -v leak="$1" -v files="$2" 'BEGIN {
    OFS = "\t"
    for (minute = 0; minute <= 60; minute++) {
      warm = minute < 5 ? minute * 10240 : 51200
      print minute * 60, minute * 1000, minute, "stokerd", 10, 100000 + warm + leak * minute + minute % 3 * 100, 200000, 9, 30
      if (minute != 30)
        print minute * 60, minute * 1000, minute, "stoker-feed/0", minute < 30 ? 11 : 12, 8000, 9000, 3, 10 + files * minute
    }
  }' >"$scratch/looks"
}
looks 0 0
judge || fail "memory that is flat after a warm-up is called grown"
grep -qE '^stokerd .* 0 +flat$' "$scratch/out" || fail "stokerd is not called flat"
grep -qE '^stoker-feed/0 .* 1 +flat$' "$scratch/out" || fail "a reader that was replaced once is not called flat"
grep -qE '^ +1800 .* - *$' "$scratch/out" || fail "the minute without a reader is not shown"
grep -q '^60000 steps and 60 evaluated checkpoints in 3600 seconds' "$scratch/out" || fail "the steps are not told"
looks 200 0
if judge; then fail "10 MiB an hour are called flat"; fi
grep -qE '^stokerd .* GROWN$' "$scratch/out" || fail "what has grown is not named"
grep -qE '^stoker-feed/0 .* flat$' "$scratch/out" || fail "what has not grown is called so"
looks 0 1
if judge; then fail "a descriptor a minute is called flat"; fi
grep -qE '^stoker-feed/0 .* GROWN$' "$scratch/out" || fail "whose descriptors have grown is not named"
head -n 3 "$scratch/looks" >"$scratch/few"
mv "$scratch/few" "$scratch/looks"
if judge; then fail "three looks are enough for a verdict"; fi
rm "$scratch/out"
[[ -n $bin ]] || exit 0

STOKER_BIN=$bin "$root/scripts/soak.sh" --seconds 8 --every 1 --bound-kib 131072 --dir "$scratch/soak" >"$scratch/out" 2>&1 ||
  fail "a soak of seconds failed"
for process in stokerd stoker-feed/0 stoker-feed/1 stoker-eval; do
  grep -qE "^$process .* flat$" "$scratch/out" || fail "$process was not looked at"
done
grep -qE '^stoker-feed/1 .* [1-9]+ +flat$' "$scratch/out" || fail "no reader was killed"
grep -qE '^[1-9][0-9]* steps ' "$scratch/out" || fail "nothing was trained"
grep -q '"sample"' "$scratch/soak/run/sample_errors.jsonl" || fail "the row that cannot be read was not met"
if grep 'failed$' "$scratch/soak/stokerctl.out" >&2; then fail "stokerctl failed"; fi
exit 0
