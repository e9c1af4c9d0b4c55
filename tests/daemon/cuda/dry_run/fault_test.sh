#!/usr/bin/env bash
# fault_test.sh BIN LIBRARY: a kernel fails at the start of a run, in eager steps, in a capture, and in replays, and the memory of the device is
# too small, without a GPU (dry_run.h). stokerd exits with the code for each, and the checkpoints that it has saved are valid.
set -euo pipefail
bin=$(readlink -f "${1:?give the folder of the programs}")
library=$(readlink -f "${2:?give libdry_run.so}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'fault_test: %s\n' "$*" >&2
  tail -n 20 "$work/log" >&2
  exit 1
}
cat >"$work/config.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 4096, input_shape: [16], num_targets: 1}}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [32], dropout: 0.1}
task: {name: regression}
optimizer: {name: adamw}
train: {max_steps: 400, micro_batch_size: 8, device: cuda, num_threads: 1}
checkpoint: {save_every_steps: 50}
metrics: {tensorboard: false}
YAML
# expect CODE TEXT VARIABLE=VALUE: how stokerd ends.
expect() {
  local code=0
  rm -rf "$work/run"
  env "$3" LD_PRELOAD="$library" "$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/run" >"$work/log" 2>&1 || code=$?
  ((code == $1)) || fail "$3: exit code $code instead of $1"
  grep -q "daemon failed error=\"$2" "$work/log" || fail "$3: no error '$2'"
  if grep -q "checkpoint saved" "$work/log"; then
    "$bin/stokerctl" --run-dir "$work/run" verify >"$work/verified" || fail "$3: an invalid checkpoint"
  fi
}

for submissions in 0 3 15 40 80 110 150 300 700 1400; do
  expect 72 "device lost: " "STOKER_DRY_RUN_FAULT=$submissions"
done
grep -q "checkpoint saved" "$work/log" || fail "the last fault is before the first checkpoint"
expect 71 "out of memory: " STOKER_DRY_RUN_BYTES=1000000
STOKER_DRY_RUN_BYTES=100000000 LD_PRELOAD="$library" "$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/other" >"$work/log" 2>&1 ||
  fail "exit code $? without a fault"
