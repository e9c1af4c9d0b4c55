#!/usr/bin/env bash
# group_test.sh BIN LIBRARY REDUCTION SHARD: two ranks of a run with a device each, without a GPU (dry_run.h), through NCCL's group of
# LibTorch. They capture their steps and save; when one is killed, the other one exits, and both resume.
set -euo pipefail
bin=$(readlink -f "${1:?give the folder of the programs}")
library=$(readlink -f "${2:?give libdry_run.so}")
reduction=${3:?give ordered or allreduce} shard=${4:?give none or optimizer}

work=$(mktemp -d)
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  printf 'group_test %s %s: %s\n' "$reduction" "$shard" "$*" >&2
  tail -n 30 "$work"/*.log >&2 || true
  exit 1
}
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../../support/within.sh"

cat >"$work/config.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 4096, input_shape: [16], num_targets: 1}}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [32], dropout: 0.1}
task: {name: regression}
run: {rng: per_ticket}
train: {max_steps: 1000000, micro_batch_size: 8, gradient_accumulation_steps: 2, device: cuda, num_threads: 1}
distributed: {reduction: $reduction, shard: $shard, bucket_mib: 0.001}
checkpoint: {save_every_steps: 50, keep_last: 2}
metrics: {tensorboard: false}
YAML

# A port that no other process gets while this one holds it, but one that listens with SO_REUSEADDR, as the chief does.
coproc PORT { exec python3 -c 'import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
sys.stdin.read()'; }
read -r port <&"${PORT[0]}"

# start NAME SETTING…: both ranks, whose output is in NAME-RANK.log.
start() {
  local name=$1 rank
  shift
  pids=()
  for rank in 0 1; do
    env STOKER_DRY_RUN_DEVICES=2 LD_PRELOAD="$library" RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
      MASTER_PORT="$port" "$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/run" "$@" >"$work/$name-$rank.log" 2>&1 &
    pids+=($!)
  done
}
has_ended() { ! kill -0 "$1" 2>/dev/null; }
has_line() { grep -q "$2" "$work/$1"; }

start first
within "a checkpoint" has_line first-0.log "checkpoint saved step=50 "
for rank in 0 1; do
  within "the training of rank $rank on its device" has_line "first-$rank.log" "training started .*device=cuda:$rank "
  within "a graph of rank $rank" has_line "first-$rank.log" "cuda graph captured"
done
kill -9 "${pids[1]}"
wait "${pids[1]}" 2>/dev/null || true
within "the exit of the other rank" has_ended "${pids[0]}"
code=0
wait "${pids[0]}" || code=$?
((code == 73)) || fail "exit code $code after the loss of a rank"
last=$(find "$work/run/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
step=$((10#${last##*-}))

start second --set train.max_steps=$((step + 100))
for rank in 0 1; do
  wait "${pids[rank]}" || fail "rank $rank exits with code $?"
  has_line "second-$rank.log" "training started .*start_step=$step " || fail "rank $rank does not resume from step $step"
done
"$bin/stokerctl" --run-dir "$work/run" verify || fail "the last checkpoint is not valid"
