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
report() { "$root/scripts/soak.sh" --report "$scratch/measurements" >"$scratch/out" 2>&1; }

# write_measurements TRAINER-KIB-A-MINUTE WORKER-FILES-A-MINUTE [DELAYED-MINUTE SECONDS]: an hour of measurements. The worker
# process is replaced after 30 minutes, and the trainer takes 50 MiB more in its first five minutes. One measurement, and those
# after it, can be delayed.
write_measurements() {
  awk -v leak="$1" -v files="$2" -v delayed="${3:-0}" -v delay="${4:-0}" 'BEGIN {
    OFS = "\t"
    for (minute = 0; minute <= 60; minute++) {
      warm = minute < 5 ? minute * 10240 : 51200
      second = minute * 60 + (minute >= delayed ? delay : 0)
      print second, minute * 1000, minute, "stokerd", 10, 100000 + warm + leak * minute + minute % 3 * 100, 200000, 9, 30
      if (minute != 30)
        print second, minute * 1000, minute, "stoker-feed/0", minute < 30 ? 11 : 12, 8000, 9000, 3, 10 + files * minute
    }
  }' >"$scratch/measurements"
}
write_measurements 0 0
report || fail "flat memory after a warm-up is reported as grown"
grep -qE '^stokerd .* 195\.3 +\+0 +30 +9 +0 +flat$' "$scratch/out" || fail "stokerd is not reported as flat, with 195.3 MiB, 30 files and 9 threads"
grep -qE '^stoker-feed/0 .* 1 +flat$' "$scratch/out" || fail "a worker that was replaced once is not reported as flat"
grep -qE '^ +1800 .* - *$' "$scratch/out" || fail "the minute without a worker is not shown"
grep -q '^60000 steps and 60 evaluated checkpoints in 3600 seconds' "$scratch/out" || fail "the steps are not reported"
write_measurements 200 0
if report; then fail "10 MiB per hour are reported as flat"; fi
grep -qE '^stokerd .* GROWN$' "$scratch/out" || fail "the grown process is not reported"
grep -qE '^stoker-feed/0 .* flat$' "$scratch/out" || fail "the flat process is reported as grown"
write_measurements 0 1
if report; then fail "a descriptor per minute is reported as flat"; fi
grep -qE '^stoker-feed/0 .* GROWN$' "$scratch/out" || fail "growing descriptors are not reported"
# A busy disk delays the fourth measurement by two hours: there is none in the second sixth of the time.
write_measurements 0 0 3 7200
report || fail "flat memory is reported as grown after a delay"
grep -qE '^60000 steps .* in 10800 seconds' "$scratch/out" || fail "the delay is not in the report"
write_measurements 200 0 3 7200
if report; then fail "10 MiB per hour are reported as flat after a delay"; fi
write_measurements 0 0
sed -i '/^3[0-9][0-9][0-9]\t.*stoker-feed/ d' "$scratch/measurements"
if report; then fail "a worker that was not replaced at the end is reported as flat"; fi
grep -qE '^stoker-feed/0 .* MISSING$' "$scratch/out" || fail "the missing worker is not reported"
head -n 3 "$scratch/measurements" >"$scratch/few"
mv "$scratch/few" "$scratch/measurements"
if report; then fail "three measurements are sufficient"; fi
rm "$scratch/out"
[[ -n $bin ]] || exit 0

# The first request takes longer than the whole soak is intended to, as on a busy disk.
mkdir "$scratch/bin"
ln -s "$(realpath "$bin")"/stoker{d,-feed,-eval} "$scratch/bin/"
cat >"$scratch/bin/stokerctl" <<SCRIPT
#!/usr/bin/env bash
set -euo pipefail
if [[ ! -e $scratch/delayed ]]; then
  touch "$scratch/delayed"
  sleep 6
fi
exec "$(realpath "$bin")/stokerctl" "\$@"
SCRIPT
chmod +x "$scratch/bin/stokerctl"
STOKER_BIN=$scratch/bin "$root/scripts/soak.sh" --seconds 6 --every 1 --bound-kib 131072 --dir "$scratch/soak" >"$scratch/out" 2>&1 ||
  fail "the short soak failed"
(($(cut -f 1 "$scratch/soak/memory.tsv" | sort -u | wc -l) == 7)) || fail "not measured seven times"
for process in stokerd stoker-feed/0 stoker-feed/1 stoker-eval; do
  grep -qE "^$process .* flat$" "$scratch/out" || fail "$process was not measured"
done
grep -qE '^stoker-feed/1 .* [1-9]+ +flat$' "$scratch/out" || fail "no worker was killed"
grep -qE '^[1-9][0-9]* steps ' "$scratch/out" || fail "no step was trained"
grep -q '"sample"' "$scratch/soak/run/sample_errors.jsonl" || fail "the invalid row was not read"
if grep 'failed$' "$scratch/soak/stokerctl.out" >&2; then fail "stokerctl failed"; fi
exit 0
