#!/usr/bin/env bash
# top_test.sh BIN: `stokerctl top` of a real run in a real terminal (tmux, 80 x 24). BIN: the folder of
# the programs. Skipped without tmux.
set -euo pipefail
bin=$(readlink -f "${1:?give the folder of the programs}")
if ! command -v tmux >/dev/null; then
  printf 'SKIP: no tmux\n'
  exit 77
fi

work=$(mktemp -d)
daemon=
clean_up() {
  tmux -S "$work/tmux" kill-server 2>/dev/null || true
  if [[ -n $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap clean_up EXIT
screen() { tmux -S "$work/tmux" capture-pane -p -t top; }
fail() {
  printf 'top_test: %s\n' "$*" >&2
  screen >&2 || true
  tail -n 5 "$work/stokerd.log" >&2 || true
  exit 1
}
# shows TEXT: polls until the screen has it.
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../support/within.sh"
is_shown() { screen | grep -qF -- "$1"; }
shows() { within "'$1' on the screen" is_shown "$1"; }
keys() { tmux -S "$work/tmux" send-keys -t top "$@"; }

cat >"$work/config.yaml" <<'YAML'
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
train: {max_steps: 100000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 100000, keep_last: 2}
metrics: {log_every_steps: 100, tensorboard: false}
YAML
"$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/run" >"$work/stokerd.log" 2>&1 &
daemon=$!
within "the control socket" test -S "$work/run/control.sock"

# The shell after it prints the exit code and whether the terminal echoes again.
tmux -S "$work/tmux" -u -f /dev/null new-session -d -x 80 -y 24 -s top \
  "env LC_ALL=C.UTF-8 TERM=screen sh -c 'echo \$\$ >\"$work/pid\"; exec \"$bin/stokerctl\" --run-dir \"$work/run\" top'; echo code \$?; stty -a; echo end of settings; sleep 600"
shows "batches ready"
shows "train loss"
# An evaluation of a checkpoint, as stoker-eval writes it.
"$bin/stokerctl" --run-dir "$work/run" checkpoint >/dev/null
saved=$work/run/checkpoints/$(readlink "$work/run/checkpoints/latest")
step=$((10#${saved##*step-}))
cat >"$work/eval.json" <<JSON
{"step":$step,"manifest_sha256":"$(sha256sum "$saved/manifest.json" | cut -d ' ' -f 1)","duration_seconds":1.0,"created_at":"2026-01-05T08:45:37.595Z","datasets":{"val":{"loss":1.25,"num_samples":100}}}
JSON
mkdir -p "$work/run/eval"
mv "$work/eval.json" "$work/run/eval/${saved##*/}.json"
shows "val loss"
shows " q  quit"
[[ $(screen | wc -l) == 24 ]] || fail "not 24 lines"

is_complete() { [[ $(screen | grep -cF "batches ready") == 1 && $(screen | sed -n "$1p") == *"quit"* ]]; }
# Another size: complete immediately, without lines of the former one.
tmux -S "$work/tmux" resize-window -t top -x 120 -y 40
within "the screen of 120 x 40" is_complete 40
tmux -S "$work/tmux" resize-window -t top -x 80 -y 24
within "the screen of 80 x 24" is_complete 24

keys p
shows "paused at step"
shows "  paused  "
keys l
shows "log (warning)"
keys p
shows "  training  "
keys '?'
shows "pause or resume training"
keys '?'
keys c
shows "saved at step"

# The terminal is as before, whatever ends it.
kill -TERM "$(cat "$work/pid")"
shows "code 143"
shows "end of settings"
screen | grep -qE '(^| )echo( |$)' || fail "the terminal does not echo after SIGTERM"
screen | grep -qE '(^| )icanon( |$)' || fail "the terminal is not in canonical mode after SIGTERM"
[[ $("$bin/stokerctl" --run-dir "$work/run" --json top | head -n 1) == '{"state":'* ]] || fail "top in a pipe is not watch"
printf 'top: drawn, resized, keys, SIGTERM\n'
