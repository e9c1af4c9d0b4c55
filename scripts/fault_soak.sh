#!/usr/bin/env bash
# Checks that a run with many faults ends with the same bytes as an undisturbed one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/soak_lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/fault_soak.sh [--seconds N] [--seed N] [--dir DIR]

Trains with two worker processes and an evaluator for half of the time, with a random fault every few seconds: stokerd, a
worker process or the evaluator is killed or stopped; SIGTERM; the wall clock jumps by up to a day (with libfaketime, if it is
installed); clients send garbage, half a line, or requests whose replies they do not read; in the middle the programs are
reinstalled. Then a second run trains to the same step without faults, and the checkpoints are compared byte for byte, and
the steps and losses of all records. Exit code 1 if they differ, or if a program has ended in an unexpected way.

  --seconds N   of both runs together (3600)
  --seed N      of the faults (STOKER_TEST_SEED, or random; it is printed, but the times of the faults depend on the machine)
  --dir DIR     directory of both runs; must not exist (default: a temporary directory, which is removed after success)

STOKER_BIN: directory of the programs (build/release/bin).
HELP
}

seconds=3600
seed=${STOKER_TEST_SEED:-$RANDOM}
dir=''
while (($#)); do
  case $1 in
    --seconds | --seed | --dir)
      (($# > 1)) || { usage >&2 && exit 64; }
      case $1 in
        --seconds) seconds=$2 ;;
        --seed) seed=$2 ;;
        --dir) dir=$(realpath -m "$2") ;;
      esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift
done
for number in "$seconds" "$seed"; do
  [[ $number =~ ^[0-9]+$ ]] || die "$number is not a number"
done
RANDOM=$seed

# ---- Programs, data and configuration

programs=(stokerd stoker-feed stoker-stacks stoker-eval stokerctl)
find_programs "${programs[@]}"
built=$bin
make_directory
# A copy that is reinstalled. The libraries are found relative to the programs.
bin=$dir/installed/bin
mkdir -p "$bin"
ln -s "$(dirname "$built")/lib" "$dir/installed/lib"
# As a package manager does: each file is renamed over the one that may be running.
install_programs() {
  local program
  for program in "${programs[@]}"; do
    cp "$built/$program" "$bin/.$program.new"
    mv -f "$bin/.$program.new" "$bin/$program"
  done
}
install_programs
config=$dir/config.yaml
write_table "$dir/table.csv"
# Wide enough that a step takes about a millisecond, so that the second run does not take hours.
cat >"$config" <<YAML
data:
  train: {format: csv, path: $dir/table.csv, fields: {label: kind}, split: [0.0, 0.9]}
  val: {format: csv, path: $dir/table.csv, fields: {label: kind}, split: [0.9, 1.0]}
feed: {num_workers: 2, num_processes: 2, worker_timeout_seconds: 5, max_restarts_per_minute: 1000}
model: {name: mlp, hidden_sizes: [256, 256], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.001}
scheduler: {name: constant}
train: {micro_batch_size: 32, max_steps: 1000000000, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: null, save_every_seconds: 1}
metrics: {log_every_steps: 200}  # few enough that none is dropped while the disk is slow
eval: {datasets: [val]}
YAML

faketime=$(find /usr/lib -name libfaketime.so.1 2>/dev/null | head -n 1)
echo '+0' >"$dir/clock"
if [[ -z $faketime ]]; then say "without clock changes: libfaketime is not installed"; fi

trainer=''
evaluator=''
clients=()
# libfaketime leaves its files if its process is killed or ends without destructors.
remove_clock() { rm -f /dev/shm/{faketime_shm,sem.faketime_sem}_"$1"; }
clean_up() {
  local pid
  for pid in $trainer $evaluator "${clients[@]}"; do
    kill -CONT "$pid" 2>/dev/null || true
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [[ -z $trainer ]] || remove_clock "$trainer"
}
trap clean_up EXIT

newest_checkpoint() { find "$run/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sort | tail -n 1 || true; }
# Only stokerd has the changed clock: a worker process may not read the file that says which.
start_trainer() {
  local clock=()
  started_at=$(newest_checkpoint)
  [[ -z $faketime ]] || clock=(LD_PRELOAD="$faketime" FAKETIME_TIMESTAMP_FILE="$dir/clock" FAKETIME_NO_CACHE=1
    FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1 "FAKETIME_SKIP_CMDS=stoker-feed,stoker-stacks")
  env "${clock[@]}" "$bin/stokerd" --config "$config" --run-dir "$run" >>"$dir/stokerd.out" 2>&1 &
  trainer=$!
}
start_evaluator() {
  "$bin/stoker-eval" --run-dir "$run" --follow >>"$dir/stoker-eval.out" 2>&1 &
  evaluator=$!
}
has_new_checkpoint() { has_ended "$trainer" || [[ $(newest_checkpoint) > $started_at ]]; }
# Threads may end meanwhile.
workers() { { cat "/proc/$trainer/task/"*/children 2>/dev/null || true; } | tr ' ' '\n' | shuf -n 1 --random-source=<(yes "$RANDOM"); }
# end_of PID: its exit code, 128 + signal after a signal.
end_of() {
  local code=0
  wait "$1" 2>/dev/null || code=$?
  printf '%d' "$code"
}

# ---- Faults

declare -A counts=()
fruitless=0 # kills in a row without a checkpoint in between; the fourth start would exit with 93
kill_trainer() {
  local code
  if [[ $(newest_checkpoint) > $started_at ]]; then fruitless=0; fi
  if ((fruitless >= 2)); then
    wait_for 120 has_new_checkpoint || fail_with_log stokerd "saves no checkpoint"
    fruitless=0
  fi
  kill -KILL "$trainer"
  code=0
  wait "$trainer" 2>/dev/null || code=$?
  ((code == 137)) || fail_with_log stokerd "exited with code $code"
  remove_clock "$trainer"
  ((++fruitless))
  start_trainer
}
stop_trainer() {
  local code=0
  kill -TERM "$trainer"
  wait_for 120 has_ended "$trainer" || fail_with_log stokerd "does not exit"
  wait "$trainer" 2>/dev/null || code=$?
  # 143: the signal came before the program had begun.
  ((code == 0 || code == 143)) || fail_with_log stokerd "exited with code $code after SIGTERM"
  remove_clock "$trainer"
  fruitless=0
}
# Stops a process for up to two seconds.
suspend() {
  kill -STOP "$1" 2>/dev/null || return 0
  sleep "$((RANDOM % 2)).$((RANDOM % 10))"
  kill -CONT "$1" 2>/dev/null || true
}
# hostile_client KIND: a client of the control socket, which ends after at most ten seconds.
hostile_client() {
  command -v python3 >/dev/null || return 0
  timeout 10 python3 - "$run/control.sock" "$1" <<'PYTHON' >/dev/null 2>&1 &
import os, socket, sys, time
path, kind = sys.argv[1:]
clients = []
for _ in range(200 if kind == "many" else 1):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    clients.append(client)
if kind == "garbage":
    client.sendall(os.urandom(1 << 20))
elif kind == "half":
    for byte in b'{"id":1,"method":"sta':
        client.sendall(bytes([byte]))
        time.sleep(0.3)
elif kind == "deaf":
    while True:
        client.sendall(b'{"id":1,"method":"status"}\n')
elif kind == "deep":
    client.sendall(b"[" * 60000 + b"\n")
time.sleep(5)
PYTHON
  clients+=($!)
}
disturb() {
  local fault=$1 worker
  counts[$fault]=$((${counts[$fault]:-0} + 1))
  case $fault in
    kill-stokerd) kill_trainer ;;
    stop-stokerd)
      stop_trainer
      start_trainer
      ;;
    suspend-stokerd) suspend "$trainer" ;;
    kill-worker)
      worker=$(workers)
      [[ -z $worker ]] || kill -KILL "$worker" 2>/dev/null || true
      ;;
    suspend-worker)
      worker=$(workers)
      [[ -z $worker ]] || suspend "$worker"
      ;;
    kill-evaluator)
      kill -KILL "$evaluator" 2>/dev/null || true
      wait "$evaluator" 2>/dev/null || true
      start_evaluator
      ;;
    change-clock) printf '%+d' $(((RANDOM % 172800) - 86400)) >"$dir/clock" ;;
    hostile-client)
      local kinds=(garbage half deaf deep many)
      hostile_client "${kinds[RANDOM % 5]}"
      ;;
    reinstall) install_programs ;;
  esac
}

say "Training with faults for $((seconds / 2)) seconds; seed $seed"
faults=(kill-stokerd stop-stokerd suspend-stokerd kill-worker suspend-worker kill-evaluator hostile-client hostile-client)
[[ -z $faketime ]] || faults+=(change-clock change-clock)
start_trainer
start_evaluator
wait_for 300 has_new_checkpoint || fail_with_log stokerd "saves no checkpoint"
start=$SECONDS
is_reinstalled=no
while ((SECONDS - start < seconds / 2)); do
  ! has_ended "$trainer" || fail_with_log stokerd "exited with code $(end_of "$trainer")"
  # An evaluator that follows a run ends with it.
  if has_ended "$evaluator"; then
    code=$(end_of "$evaluator")
    ((code == 0)) || fail_with_log stoker-eval "exited with code $code"
    start_evaluator
  fi
  if [[ $is_reinstalled == no ]] && ((SECONDS - start >= seconds / 4)); then
    disturb reinstall
    is_reinstalled=yes
  else
    disturb "${faults[RANDOM % ${#faults[@]}]}"
  fi
  sleep "$((RANDOM % 3)).$((RANDOM % 10))"
done

# ---- Comparison

# A stokerd that is stopped before it has begun does not tell the evaluator that the run has ended.
wait_for 120 has_new_checkpoint || fail_with_log stokerd "saves no checkpoint"
stop_trainer
trainer=''
last=$(newest_checkpoint)
wait_for 300 has_ended "$evaluator" || fail_with_log stoker-eval "does not exit after the run"
code=$(end_of "$evaluator")
evaluator=''
((code == 0)) || fail_with_log stoker-eval "exited with code $code"
"$bin/stokerctl" --run-dir "$run" verify --all >"$dir/verify.out" || fail_with_log verify "found a corrupt checkpoint"
step=$((10#${last#step-}))
for fault in "${!counts[@]}"; do printf '%6d %s\n' "${counts[$fault]}" "$fault"; done | sort -k2
say "Training $step steps without faults"
"$bin/stokerd" --config "$config" --run-dir "$dir/undisturbed" --set train.max_steps="$step" --set checkpoint.save_every_seconds=60 \
  >"$dir/undisturbed.out" 2>&1 || fail_with_log undisturbed "failed"
for file in model.safetensors optimizer.safetensors; do
  cmp "$run/checkpoints/$last/$file" "$dir/undisturbed/checkpoints/$last/$file" || die "the runs differ; seed $seed, files in $dir"
done
# The last step has a record only in the run that ended with it.
records() {
  sed -nE 's/^\{"step":([0-9]+),.*"loss":([^,]+),.*"samples_seen":([0-9]+),.*/\1 \2 \3/p' "$1/metrics/train.jsonl" |
    awk -v last="$step" '$1 < last'
}
[[ -n $(records "$run") ]] || die "metrics/train.jsonl has no records; seed $seed, files in $dir"
cmp <(records "$run") <(records "$dir/undisturbed") || die "metrics/train.jsonl differs; seed $seed, files in $dir"
say "The same bytes after $step steps: $(sha256sum <"$run/checkpoints/$last/model.safetensors" | cut -c 1-16)"
[[ -z $scratch ]] || rm -rf "$scratch"
