#!/usr/bin/env bash
# launcher_test.sh BIN openmpi|slurm: ranks of one run under the real launcher, on this host. They train
# the same bytes as one process, also after a rank was killed, or the job preempted and requeued, in Slurm also by
# the signal before its time limit, and with another number of ranks. Runs end some steps after the preemption, so that no time is too short.
# BIN: the folder of stokerd. Skipped without the launcher, which scripts/deps.sh --launchers installs: mpirun, or
# Slurm's programs, which start a cluster of one node for the test.
set -euo pipefail
bin=$(readlink -f "${1:?give the folder of the programs}")
launcher=${2:?give openmpi or slurm}
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}

work=$(mktemp -d)
pids=()
clean_up() {
  local pid
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  printf 'launcher_test %s: %s\n' "$launcher" "$*" >&2
  tail -n 20 "$work"/*.log "$work"/run/logs/*.log >&2 || true
  exit 1
}
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../support/within.sh"

cat >"$work/config.yaml" <<YAML
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [256, 256], dropout: 0.1}
task: {name: classification}
scheduler: {name: constant}
train: {max_steps: 1000000, micro_batch_size: 64, gradient_accumulation_steps: 4, device: cpu, num_threads: 1}
distributed: {reduction: ordered}
checkpoint: {save_every_steps: 20, keep_last: 2}
metrics: {log_every_steps: 1, tensorboard: false}
control: {socket: null}
YAML
command=("$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/run")

records() { grep -c . "$work/run/metrics/train.jsonl" 2>/dev/null || true; }
has_trained() { [[ $(records) -gt ${1:?} ]]; }
exit_field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$work/run/exit_status.json" 2>/dev/null; }
has_state() { [[ $(exit_field state) == "$1" ]]; }
has_ranks() { grep -q ' pid=[0-9]' "$work/run/ranks/1/logs/stokerd.log" 2>/dev/null; }
expect_same_bytes() {
  local file newest steps
  steps=$(exit_field step)
  "$bin/stokerd" --config "$work/config.yaml" --run-dir "$work/alone" --set "train.max_steps=$steps" \
    >"$work/alone.log" 2>&1 || fail "one process failed"
  newest=$(printf 'step-%09d' "$steps")
  for file in model.safetensors optimizer.safetensors trainer_state.safetensors; do
    cmp "$work/run/checkpoints/$newest/$file" "$work/alone/checkpoints/$newest/$file" || fail "$file differs"
  done
}

case $launcher in
openmpi)
  command -v mpirun >/dev/null || skip "no mpirun; scripts/deps.sh --launchers installs it"
  # The variables permit root, as in a container. mpirun waits the whole timeout, of 1 s by default.
  mpi=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none
    --mca odls_base_sigkill_timeout 3 -np 2 "${command[@]}")
  "${mpi[@]}" >"$work/first.log" 2>&1 &
  pids+=($!)
  within "training" has_trained 25
  within "a second rank" has_ranks
  kill -9 "$(sed -n 's/.* pid=\([0-9]*\).*/\1/p' "$work/run/ranks/1/logs/stokerd.log" | head -n 1)"
  wait "${pids[-1]}" && fail "mpirun succeeds after a rank was killed"
  # Preempted: mpirun passes SIGTERM on.
  "${mpi[@]}" >"$work/second.log" 2>&1 &
  pids+=($!)
  before=$(records)
  within "the second start" has_trained $((before + 5))
  kill -TERM "${pids[-1]}"
  wait "${pids[-1]}" || true
  has_state preempted || fail "the state is $(exit_field state)"
  "${mpi[@]}" --set "train.max_steps=$(($(exit_field step) + 20))" >"$work/third.log" 2>&1 || fail "the third start failed"
  ;;
slurm)
  for program in munged slurmctld slurmd sbatch scontrol; do
    command -v "$program" >/dev/null || skip "no $program; scripts/deps.sh --launchers installs it"
  done
  [[ $(id -u) == 0 ]] || skip "slurmd needs root"
  host=$(hostname -s)
  mkdir -m 700 "$work/munge"
  mkdir "$work/state" "$work/spool"
  head -c 1024 /dev/urandom >"$work/munge/key"
  chmod 600 "$work/munge/key"
  # A folder below /tmp, which others can write to, is accepted with --force.
  munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
    --log-file="$work/munge/log" --seed-file="$work/munge/seed" >"$work/munged.log" 2>&1 &
  pids+=($!)
  read -r controller_port node_port < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))')
  cat >"$work/slurm.conf" <<CONF
ClusterName=stoker
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
SlurmctldPort=$controller_port
SlurmdPort=$node_port
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobRequeue=1
KillWait=30
MinJobAge=300
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  export SLURM_CONF=$work/slurm.conf
  within "munged" test -S "$work/munge/socket"
  slurmctld -D -i >"$work/slurmctld.out.log" 2>&1 &
  pids+=($!)
  slurmd -D >"$work/slurmd.out.log" 2>&1 &
  pids+=($!)
  is_idle() { sinfo --noheader -o %T 2>/dev/null | grep -q idle; }
  within "the node" is_idle
  cat >"$work/job.sh" <<JOB
#!/bin/bash
#SBATCH --ntasks=2 --overcommit --requeue --signal=TERM@170 --open-mode=append --output=$work/job.log
steps=1000000
ranks=2
if ((\${SLURM_RESTART_COUNT:-0} == 3)); then
  ranks=4
  steps=\$((\$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' "$work/run/exit_status.json") + 20))
fi
srun --overcommit --ntasks=\$ranks --kill-on-bad-exit=1 ${command[*]} --set "train.max_steps=\$steps"
JOB
  job=$(sbatch --parsable "$work/job.sh")
  within "training" has_trained 25
  within "a second rank" has_ranks
  # A rank is killed: srun ends the step, and with it the job, which is requeued by hand as Slurm does
  # after the failure of a node.
  kill -9 "$(sed -n 's/.* pid=\([0-9]*\).*/\1/p' "$work/run/ranks/1/logs/stokerd.log" | head -n 1)"
  has_ended() { ! squeue --noheader --states=RUNNING,COMPLETING --job "$job" 2>/dev/null | grep -q .; }
  within "the end of the step" has_ended
  before=$(records)
  scontrol requeue "$job"
  within "training after the requeue" has_trained $((before + 5))
  # Its time limit comes near: --signal, which is due immediately or 10 s later. Slurm looks for that every 30 s.
  was_preempted_after() { has_state preempted && [[ $(exit_field step) -gt ${1:?} ]]; }
  # In two to three minutes, whatever the job has used so far.
  elapsed=$(squeue --noheader --format=%M --job "$job")
  [[ $elapsed =~ ^([0-9]+):[0-9]+$ ]] || fail "the job has run for '$elapsed'"
  scontrol update "JobId=$job" "TimeLimit=$((10#${BASH_REMATCH[1]} + 3))"
  within "the preemption by --signal" was_preempted_after 0
  within "the end of the job" has_ended
  ! grep -q "TIME LIMIT" "$work/job.log" || fail "the time limit ended the job"
  signalled_at=$(exit_field step)
  scontrol requeuehold "$job"
  scontrol update "JobId=$job" TimeLimit=UNLIMITED
  scontrol release "$job"
  within "training after the time limit" has_trained $((signalled_at + 5))
  # cred_expire above: a requeued job waits as long.
  # Slurm requeues the running job: SIGTERM, then KillWait.
  scontrol requeue "$job"
  within "the preemption" was_preempted_after "$signalled_at"
  within "the end of the run" has_state finished
  grep -q 'launcher=Slurm.*world_size=4.*restart_count=3' "$work/run/logs/stokerd.log" ||
    fail "the job was not restarted three times, or not with four ranks"
  ;;
*) fail "unknown launcher" ;;
esac
has_state finished || fail "the state is $(exit_field state)"
grep -q "world_size=2" "$work/run/logs/stokerd.log" || fail "the group had not two ranks"
expect_same_bytes
printf 'launcher_test %s: passed\n' "$launcher"
