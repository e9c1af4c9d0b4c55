#!/usr/bin/env bash
# operations_test.sh ROOT BIN: runs the commands of docs/operations.md that back up, restore and move a run, as they are printed there,
# on a run that trains, and compares the list of threads there with that of the run. sudo, systemctl, chown and ssh are replaced by functions that do the same without root, without systemd and
# without another machine.
set -euo pipefail
root=${1:?give the root of the repository}
bin=$(readlink -f "${2:?give the folder of the programs}")
page=$root/docs/operations.md
work=$(mktemp -d)
trainer=''
clean_up() {
  [[ -z $trainer ]] || kill -KILL "$trainer" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  printf 'operations_test: %s\n' "$*" >&2
  [[ -z ${real-} ]] || printf 'the threads of the run: %s\n' "$real" >&2
  tail -n 20 "$work/stokerd.out" >&2 || true
  exit 1
}

machine=$work # its folder of files
mkdir -p "$work"{,/new}/{etc,var/lib}/stoker
cat >"$work/etc/stoker/mnist.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 4000, input_shape: [32], num_classes: 4}}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
scheduler: {name: constant}
train: {max_steps: 1000000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 500, keep_last: 10}
YAML

sudo() { "$@"; }
ssh() { "${@:2}"; }
chown() { :; }
systemctl() {
  case $1 in
    start | enable)
      "$bin/stokerd" --config "$machine/etc/stoker/mnist.yaml" --run-dir "$machine/var/lib/stoker/mnist" >>"$work/stokerd.out" 2>&1 &
      trainer=$!
      ;;
    stop | disable)
      kill -TERM "$trainer"
      wait "$trainer" || fail "stokerd ended with $?"
      trainer=''
      ;;
  esac
}
# The commands after each marker, with the paths of this test: of $machine, after ssh of the new machine.
commands() {
  awk '/^ *<!-- run by tests\/project\/operations_test.sh -->$/ { marked = 1; next }
    marked && /^ *```sh$/ { inside = 1; blocks++; next }
    /^ *```$/ { inside = 0; marked = 0 }
    inside && blocks == wanted { print }' wanted="$1" "$page" |
    sed -E "s#(ssh new .* )/(var/lib|etc)/stoker#\1$work/new/\2/stoker#; s#([ =])/(var/lib|etc)/stoker#\1$machine/\2/stoker#g; s#/backup#$work/backup#g"
}
newest() { find "$1/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sort | tail -n 1 || true; }
# wait_for_newer RUN CHECKPOINT
wait_for_newer() {
  local i
  for ((i = 0; i < 600; i++)); do
    [[ ! $(newest "$1") > $2 ]] || return 0
    kill -0 "$trainer" 2>/dev/null || fail "stokerd has ended"
    sleep 0.1
  done
  fail "no checkpoint after $2"
}
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../support/within.sh"

PATH=$bin:$PATH
run='' backup='' # set by the commands
for block in 1 2 3 4; do [[ -n $(commands "$block") ]] || fail "there is no block $block of marked commands in $page"; done
[[ -z $(commands 5) ]] || fail "more marked commands than this test runs in $page"
systemctl start
wait_for_newer "$work/var/lib/stoker/mnist" ''
# The threads of the page's example are those of a run.
printed=$(awk '/^## Inspecting threads/ { inside = 1 } inside && /^─/ { lists = 1; next } lists && NF == 0 { exit } lists' "$page" | sed 's/   *.*//' | sort)
has_printed_threads() {
  real=$("$bin/stokerctl" --json --run-dir "$work/var/lib/stoker/mnist" threads |
    python3 -c 'import json, sys; print("\n".join(sorted(each["name"] for each in json.load(sys.stdin)["threads"])))')
  [[ $printed == "$(sort <<<"$real")" ]]
}
within "the threads in $page: $printed" has_printed_threads
eval "$(commands 1)"
saved=$(newest "$backup")
[[ -n $saved ]] || fail "there is no checkpoint in the backup"
wait_for_newer "$run" "$saved"
eval "$(commands 2)"
wait_for_newer "$run" "$saved"
systemctl stop
grep -q "run resumed step=$((10#${saved#step-})) " "$work/stokerd.out" || fail "the run was not resumed from the backup"
"$bin/stokerctl" --run-dir "$run.broken" verify --all >/dev/null || fail "the run that was replaced is corrupt"

# A new run, which moves and is compared with one that does not.
rm -rf "$run"
sed -i 's/save_every_steps: 500/save_every_steps: 50/' "$work/etc/stoker/mnist.yaml"
systemctl start
wait_for_newer "$run" ''
eval "$(commands 3)"
saved=$(newest "$run")
machine=$work/new run=$work/new/var/lib/stoker/mnist
: >"$work/stokerd.out"
eval "$(commands 4)"
wait_for_newer "$run" "$saved"
systemctl stop
grep -q "run resumed step=$((10#${saved#step-})) " "$work/stokerd.out" || fail "the run was not resumed after its move"
last=$(newest "$run")
"$bin/stokerd" --config "$work/etc/stoker/mnist.yaml" --run-dir "$work/unmoved" --set train.max_steps=$((10#${last#step-})) \
  >>"$work/stokerd.out" 2>&1 || fail "the run that does not move ended with $?"
for file in model optimizer; do
  cmp {"$run","$work/unmoved"}"/checkpoints/$last/$file.safetensors" || fail "the run differs from one that does not move"
done
