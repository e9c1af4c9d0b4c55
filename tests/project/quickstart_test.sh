#!/usr/bin/env bash
# Tests scripts/quickstart.sh with fake programs: what it starts, in which order, and on which run.
set -euo pipefail
root=${1:?give the root of the repository}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir "$tree/bin"
export CALLS=$tree/calls STOKER_BIN=$tree/bin

# Each fake program logs its call. The fake trainer ends as FAKE_END specifies; the fake evaluator
# waits for the end of the run, like the real one.
cat >"$tree/bin/stokerd" <<'FAKE'
#!/usr/bin/env bash
echo "stokerd $*" >>"$CALLS"
while (($#)); do [[ $1 != --run-dir ]] || run=$2; shift; done
rm -f "$run/exit_status.json"
printf 'task:\n  name: language_modeling\n' >"$run/config.yaml"
[[ ${FAKE_END:-finished} != failed ]] || exit 74
for ((i = 0; i < 600; i++)); do [[ ! -e $run/evaluator-is-there ]] || break; sleep 0.05; done
echo "{\"state\":\"${FAKE_END:-finished}\",\"step\":10}" >"$run/exit_status.json"
FAKE
cat >"$tree/bin/stoker-eval" <<'FAKE'
#!/usr/bin/env bash
run=$2
if [[ $* != *--follow* ]]; then
  echo "stoker-eval $*" >>"$CALLS"
  exit
fi
touch "$run/evaluator-is-there"
for ((i = 0; i < 600; i++)); do [[ ! -e $run/exit_status.json ]] || break; sleep 0.05; done
echo "stoker-eval followed" >>"$CALLS"
FAKE
cat >"$tree/bin/stokerctl" <<'FAKE'
#!/usr/bin/env bash
echo "stokerctl $*" >>"$CALLS"
FAKE
cp "$tree/bin/stokerctl" "$tree/bin/stoker-feed"
chmod +x "$tree"/bin/*
echo 'run: {}' >"$tree/config.yaml"

fail() {
  printf '%s\ncalls:\n%s\n' "$*" "$(cat "$CALLS")" >&2
  exit 1
}
quickstart() {
  : >"$CALLS"
  "$root/scripts/quickstart.sh" --no-build --config "$tree/config.yaml" --run-dir "$tree/run" "$@" >"$tree/out" 2>&1
}
expect_calls() {
  local what=$1 expected
  shift
  expected=$(printf '%s\n' "$@")
  [[ $(cat "$CALLS") == "$expected" ]] || fail "$what; expected:
$expected"
}

quickstart --set train.max_steps=10 || fail "a first run failed: $(cat "$tree/out")"
expect_calls 'a first run' "stokerd --config $tree/config.yaml --run-dir $tree/run --set train.max_steps=10" \
  'stoker-eval followed' "stokerctl --run-dir $tree/run report" \
  "stoker-eval --run-dir $tree/run --generate 300"
grep -q 'tensorboard --logdir' "$tree/out" || fail "the next commands are missing: $(cat "$tree/out")"

FAKE_END=stopped quickstart || fail 'a second run failed'
grep -q -- "--run-dir $tree/run-2" "$CALLS" || fail 'a finished run was modified'

quickstart || fail 'resuming after a stop failed'
grep -q "^stokerd .*--run-dir $tree/run-2$" "$CALLS" || fail 'a stopped run was not resumed'
grep -q 'stoker-eval followed' "$CALLS" || fail 'the evaluator did not follow a resumed run'

FAKE_END=failed quickstart --new && fail 'a failure of stokerd was not returned'
grep -q 'exit code 74' "$tree/out" || fail "the exit code is not reported: $(cat "$tree/out")"
grep -q 'stokerctl' "$CALLS" && fail 'a failed run was reported'
[[ -d $tree/run-3 ]] || fail '--new did not create a new run'
exit 0
