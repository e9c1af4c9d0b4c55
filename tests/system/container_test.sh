#!/usr/bin/env bash
# container_test.sh BIN CASE: runs stokerd as in a container, in separate namespaces. Skipped (77) without the rights for them.
# shellcheck disable=SC2016  # the scripts expand their arguments themselves
set -euo pipefail
bin=${1:?give the folder of the programs}
case=${2:?give the case}

skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
fail() {
  printf 'container_test: %s\n' "$*" >&2
  tail -n 20 "$work"/*.out >&2 2>/dev/null || true
  exit 1
}
# shellcheck source=tests/support/within.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../support/within.sh"
((EUID == 0)) || skip "needs root, to make namespaces"
unshare --pid --fork --mount --mount-proc true 2>/dev/null || skip "namespaces are not permitted here"

work=$(mktemp -d)
outer=
trap '[[ -z $outer ]] || kill -KILL "$outer" 2>/dev/null || true; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/runs"
cat >"$work/config.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 4000, input_shape: [32], num_classes: 4}}
feed: {num_workers: 2, num_processes: 2}
model: {name: mlp, hidden_sizes: [32]}
task: {name: classification}
train: {max_steps: 200, micro_batch_size: 16, device: cpu, num_threads: 1}
YAML
run=$work/runs/run

# in_namespaces SCRIPT [ARGUMENT…]: replaces this shell: as root, with its own process and mount namespace.
in_namespaces() {
  local script=$1
  shift
  exec unshare --pid --fork --mount --propagation private --mount-proc --kill-child bash -euc "$script" bash "$@"
}
finishes() { grep -q '"state":"finished"' "$run/exit_status.json" || fail "the run has not finished"; }

case $case in
  # Every path but that of the run is read-only, /tmp included.
  read_only_root)
    (in_namespaces 'mount --bind "$2" "$2"
      mount -o remount,bind,ro / && mount -o remount,bind,ro /tmp 2>/dev/null || true
      mount -o remount,bind,ro "$(findmnt -no TARGET --target "$3")" 2>/dev/null || true
      ! touch "$3/probe" 2>/dev/null || { echo "the root is writable"; exit 1; }
      exec "$1/stokerd" --config "$3/config.yaml" --run-dir "$2/run"' "$bin" "$work/runs" "$work") >"$work/stokerd.out" 2>&1 ||
      fail "stokerd failed on a read-only root"
    finishes
    ;;
  # As OpenShift starts containers: a user without a name and a home.
  random_uid)
    chown 1234567:0 "$work/runs"
    program=$bin/stokerd
    setpriv --reuid=1234567 --regid=0 --clear-groups test -x "$program" || skip "other users cannot read $bin"
    env -u HOME setpriv --reuid=1234567 --regid=0 --clear-groups "$program" --config "$work/config.yaml" --run-dir "$run" \
      >"$work/stokerd.out" 2>&1 || fail "stokerd failed as a random user"
    finishes
    [[ $(stat -c %u "$run/checkpoints") == 1234567 ]] || fail "the run has another owner"
    ;;
  # The default of container runtimes is 64 MiB; the ring of this run has 160 MiB.
  small_dev_shm)
    (in_namespaces 'mount -t tmpfs -o size=1m tmpfs /dev/shm
      exec "$1/stokerd" --config "$2/config.yaml" --run-dir "$2/runs/run" --set data.train.input_shape="[131072]" \
        --set data.train.num_samples=64 --set feed.prefetch_batches=16 --set train.max_steps=10' "$bin" "$work") >"$work/stokerd.out" 2>&1 ||
      fail "stokerd failed with a small /dev/shm"
    finishes
    ;;
  # stokerd is PID 1: a signal handler is all that it needs there.
  signals_to_pid_1)
    (in_namespaces '[[ $$ == 1 ]]
      exec "$1/stokerd" --config "$2/config.yaml" --run-dir "$2/runs/run" --set train.max_steps=1000000000' "$bin" "$work") \
      >"$work/stokerd.out" 2>&1 &
    outer=$!
    within "training" test -s "$run/metrics/train.jsonl"
    read -r inner <"/proc/$outer/task/$outer/children" || true
    kill -TERM "${inner:-$outer}"
    code=0
    wait "$outer" || code=$?
    ((code == 0)) || fail "exit code $code after SIGTERM to PID 1"
    grep -q '"state":"stopped"' "$run/exit_status.json" || fail "the run was not stopped"
    [[ -n $(ls "$run/checkpoints") ]] || fail "nothing was saved"
    ;;
  # As in the image: tini reaps the processes that programs of run.on_event_command leave behind.
  orphans)
    tini=$(command -v tini) || skip "tini is not installed"
    cat >"$work/leave.sh" <<'SH'
#!/bin/sh
(sleep 0.1 &) </dev/null >/dev/null 2>&1
SH
    chmod 755 "$work/leave.sh"
    unshare --pid --fork --mount --mount-proc --kill-child "$tini" -- "$bin/stokerd" --config "$work/config.yaml" --run-dir "$run" \
      --set train.max_steps=1000000000 --set checkpoint.save_every_steps=100 \
      --set "run.on_event_command=[{events: [\"checkpoint saved\"], command: [$work/leave.sh]}]" >"$work/stokerd.out" 2>&1 &
    outer=$!
    has_saved_five_times() { [[ $(grep -c 'checkpoint saved' "$work/stokerd.out" 2>/dev/null) -ge 5 ]]; }
    within "five checkpoints" has_saved_five_times
    read -r init <"/proc/$outer/task/$outer/children" || true
    # One that has just ended can be there; without tini, those of each checkpoint remain.
    for ((i = 0; i < 600; i++)); do
      zombies=$(pgrep --parent "$init" --runstates Z --count || true)
      ((zombies > 0)) || break
      sleep 0.1
    done
    kill -TERM "$init"
    code=0
    wait "$outer" || code=$?
    ((zombies == 0)) || fail "$zombies processes were not reaped"
    ((code == 0)) || fail "exit code $code: the signal was not forwarded"
    ;;
  # Numbers of threads that are null or auto: those of the affinity mask, or of the quota of the control group.
  usable_cores)
    # expect_one_core NAME COMMAND…: COMMAND starts stokerd with a limit of one core, in its own process.
    expect_one_core() {
      local log=$work/$1.out run=$work/runs/$1 worker
      "${@:2}" "$bin/stokerd" --config "$work/config.yaml" --run-dir "$run" --set train.max_steps=1000000000 \
        --set train.num_threads=null --set feed.num_workers=auto --set feed.num_processes=1 >"$log" 2>&1 &
      trainer=$!
      within "$1: training" test -s "$run/metrics/train.jsonl"
      within "$1: a trainer with 1 thread" grep -q ' training started .* num_threads=1 ' "$log"
      worker=$(pgrep --parent "$trainer" --exact stoker-feed) || fail "$1: no worker process"
      tr '\0' ' ' <"/proc/$worker/cmdline" | grep -q -- ' --num-threads 1 ' || fail "$1: the worker process has not 1 thread"
      kill -TERM "$trainer"
      wait "$trainer" || fail "$1: stokerd failed"
      trainer=''
    }
    in_group() {
      echo "$BASHPID" >"$group/cgroup.procs"
      exec "$@"
    }
    trainer='' group=''
    trap 'kill -KILL $trainer 2>/dev/null || true; wait; rmdir "$group" 2>/dev/null || true; rm -rf "$work"' EXIT
    core=$(taskset --cpu-list --pid $$ | sed 's/.*: //; s/[-,].*//')
    expect_one_core affinity taskset --cpu-list "$core"
    # cgroup v1 or v2
    for group in /sys/fs/cgroup/cpu/stoker-test-$$ /sys/fs/cgroup/stoker-test-$$; do
      if mkdir "$group" 2>/dev/null; then break; fi
    done
    if [[ -e $group/cpu.cfs_quota_us ]]; then
      cat "$group/cpu.cfs_period_us" >"$group/cpu.cfs_quota_us"
    elif [[ -e $group/cpu.max ]]; then
      echo '100000 100000' >"$group/cpu.max"
    else
      skip "a control group with a CPU quota cannot be created; the affinity mask was tested"
    fi
    expect_one_core quota in_group
    ;;
  *) fail "no such case: $case" ;;
esac
