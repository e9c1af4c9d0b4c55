#!/usr/bin/env bash
# producer_run_test.sh BUILD COMPILER: trains with the producers of docs/examples, installed and compiled
# outside the source tree, and kills one of them and stokerd with SIGKILL. The C++ producer attaches to
# the restarted stokerd and exits when the data ends. Skipped without Python's recv_fds.
set -euo pipefail
build=${1:?give the build folder} compiler=${2:?give the C++ compiler}
python3 -c 'import socket, ctypes; socket.recv_fds; ctypes.CDLL("libatomic.so.1")' 2>/dev/null || {
  echo "no python3 with socket.recv_fds and libatomic; skipped"
  exit 77
}
scratch=$(mktemp -d)
processes=()
cleanup() {
  ((${#processes[@]} == 0)) || kill -KILL "${processes[@]}" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
fail() {
  printf 'producer_run_test: %s\n' "$*" >&2
  tail -n 5 "$scratch"/*.log >&2
  exit 1
}

tree="$scratch/far away/stoker" run=$scratch/run
cmake --install "$build" --component dev --prefix "$tree" >"$scratch/install.log"
"$compiler" -std=c++20 -O2 -I "$tree/include" "$tree/share/stoker/producer/ring_producer.cc" -o "$scratch/ring_producer"
cat >"$scratch/run.yaml" <<YAML
run: {dir: "$run"}
data: {train: {format: synthetic, num_samples: 64, input_shape: [3, 10], num_classes: 2}}
feed: {producers: external, prefetch_batches: 4}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
train: {max_steps: 1000000000, micro_batch_size: 16, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 500}
YAML

# Starts a process; its ID is $started.
start() {
  local log=$scratch/$1.log
  "${@:2}" >>"$log" 2>&1 &
  started=$!
  processes+=("$started")
}
status() { "$build/bin/stokerctl" --run-dir "$run" --json status 2>/dev/null; }
# Waits until a number of the status is at least N.
wait_until() {
  local left value
  for ((left = 1200; left > 0; left--)); do  # not seconds: a busy machine makes fewer polls
    sleep 0.1
    value=$(status | grep -oE "\"$1\":[0-9]+" | cut -d : -f 2) || continue
    ((value < $2)) || return 0
  done
  fail "$1 is not $2 after two minutes"
}

start stokerd "$build/bin/stokerd" --config "$scratch/run.yaml"
stokerd=$started
wait_until uptime_seconds 0
# It exits if the first attach is too early.
start cpp "$scratch/ring_producer" "$run"
cpp=$started
wait_until external_producers 1
start python "$tree/share/stoker/producer/ring_producer.py" "$run"
python=$started
wait_until external_producers 2
kill -KILL "$python"
wait_until last_saved_step 1000

kill -KILL "$stokerd"
if wait "$stokerd"; then fail "stokerd was not killed"; fi
saved=$(readlink "$run/checkpoints/latest")
steps=$((10#${saved##*step-} + 2000))
start stokerd "$build/bin/stokerd" --config "$scratch/run.yaml" --set "train.max_steps=$steps"
stokerd=$started
# Its batches come from the C++ producer only.
wait "$stokerd" || fail "stokerd exited with $?"
wait "$cpp" || fail "the producer exited with $?"
grep -q 'end of data: all batches are filled; filled [0-9]* batches' "$scratch/cpp.log" || fail "the producer reports no end of data"
"$build/bin/stokerctl" --run-dir "$run" verify >/dev/null
echo "$steps steps with $(grep -oE 'filled [0-9]+' "$scratch/cpp.log") batches in C++"
