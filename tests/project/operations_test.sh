#!/usr/bin/env bash
# operations_test.sh ROOT BIN: runs the commands of docs/operations.md that back up and restore a run, as they are printed there, on a
# run that trains. sudo, systemctl and chown are replaced by functions that do the same without root and without systemd.
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
  tail -n 20 "$work/stokerd.out" >&2 || true
  exit 1
}

mkdir -p "$work/etc/stoker" "$work/var/lib/stoker"
cat >"$work/etc/stoker/mnist.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 4000, input_shape: [32], num_classes: 4}}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
scheduler: {name: constant}
train: {max_steps: 1000000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 500, keep_last: 10}
YAML

sudo() { "$@"; }
chown() { :; }
systemctl() {
  case $1 in
    start)
      "$bin/stokerd" --config "$work/etc/stoker/mnist.yaml" --run-dir "$work/var/lib/stoker/mnist" >>"$work/stokerd.out" 2>&1 &
      trainer=$!
      ;;
    stop)
      kill -TERM "$trainer"
      wait "$trainer" || fail "stokerd ended with $?"
      trainer=''
      ;;
  esac
}
# The commands after each marker, with the paths of this test.
commands() {
  awk '/^<!-- run by tests\/project\/operations_test.sh -->$/ { marked = 1; next }
    marked && /^```sh$/ { inside = 1; blocks++; next }
    /^```$/ { inside = 0; marked = 0 }
    inside && blocks == wanted { print }' wanted="$1" "$page" | sed "s|/var/lib/stoker|$work/var/lib/stoker|g; s|/etc/stoker|$work/etc/stoker|g; s|/backup|$work/backup|g"
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

PATH=$bin:$PATH
run='' backup='' # set by the commands
[[ -n $(commands 1) && -n $(commands 2) && -z $(commands 3) ]] || fail "the marked commands were not found in $page"
systemctl start
wait_for_newer "$work/var/lib/stoker/mnist" ''
eval "$(commands 1)"
saved=$(newest "$backup")
[[ -n $saved ]] || fail "there is no checkpoint in the backup"
wait_for_newer "$run" "$saved"
eval "$(commands 2)"
wait_for_newer "$run" "$saved"
grep -q "run resumed step=$((10#${saved#step-})) " "$work/stokerd.out" || fail "the run was not resumed from the backup"
"$bin/stokerctl" --run-dir "$run.broken" verify --all >/dev/null || fail "the run that was replaced is corrupt"
systemctl stop
