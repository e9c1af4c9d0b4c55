#!/usr/bin/env bash
# Checks that the memory use of the programs does not grow over a long run.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$(dirname "${BASH_SOURCE[0]}")/soak_lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/soak.sh [--seconds N] [--every N] [--bound-kib N] [--config FILE] [--dir DIR]
       scripts/soak.sh --report FILE [--bound-kib N]

Trains for an hour with two worker processes and an evaluator that follows the run, saves a checkpoint every 20 seconds, sends
requests with stokerctl, kills a worker process every ten minutes, and measures the memory of each process every minute. Prints
a table and a verdict; exit code 1 if a process has grown or has exited unexpectedly.

  --seconds N     duration (3600); longer if requests or the disk are slow, because the number of measurements is fixed
  --every N       seconds between two measurements, at least (60)
  --bound-kib N   maximum growth of a process (4096)
  --config FILE   train with this configuration instead of a small network on a generated table; its train.max_steps is ignored
  --dir DIR       directory for table, run and measurements; must not exist (default: a temporary directory, which is removed)
  --report FILE   do not train: print the table and the verdict for the measurements in DIR/memory.tsv

Compared are the private memory of each process (RssAnon in /proc/PID/status, which excludes the ring and the pages of programs
and libraries) and its open files: medians over a sixth of its measurements, after a warm-up of a sixth (ten of sixty), and at
the end. Resident memory (VmRSS), open files and threads are those of the last measurement. STOKER_BIN: directory of the programs
(build/release/bin).
HELP
}

seconds=3600
every=60
bound_kib=4096
config=''
dir=''
measurements=''
while (($#)); do
  case $1 in
    --seconds | --every | --bound-kib | --config | --dir | --report)
      (($# > 1)) || { usage >&2 && exit 64; }
      case $1 in
        --seconds) seconds=$2 ;;
        --every) every=$2 ;;
        --bound-kib) bound_kib=$2 ;;
        --config) config=$(realpath -m "$2") ;;
        --dir) dir=$(realpath -m "$2") ;;
        --report) measurements=$2 ;;
      esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift
done
for number in "$seconds" "$every" "$bound_kib"; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || die "$number is not an integer above 0"
done

# ---- Evaluation

# A measurement is one line per process with tab-separated fields: seconds, step, number of
# evaluated checkpoints, process, pid, anonymous KiB, total resident KiB, threads, open file
# descriptors. Compared are parts of the measurements of a process, not of the time: a busy disk can
# delay measurements. A process is missing without measurements at the end, or in half of all.
report() {
  awk -F '\t' -v bound="$bound_kib" '
    # Over the measurements of a process from number "from" to number "to", counted from 0.
    function median(process, column, from, to,    i, j, n, number, value, values) {
      n = 0
      number = -1
      for (i = 1; i <= times; i++) {
        if (!((time[i], process) in own)) continue
        number++
        if (number < from || number > to) continue
        value = column == "own" ? own[time[i], process] : open[time[i], process]
        for (j = n++; j > 0 && values[j - 1] > value; j--) values[j] = values[j - 1]
        values[j] = value
      }
      return n == 0 ? -1 : values[int((n - 1) / 2)]
    }
    # Of the last measurement of a process.
    function at_end(values, process) { return values[time[last_time[process]], process] }
    !($1 in known_time) { known_time[$1]; time[++times] = $1; step[times] = $2; evaluated[times] = $3 }
    $4 != "" {
      if (!($4 in known)) { known[$4]; process[++processes] = $4 }
      if (($4 in pid) && pid[$4] != $5) replaced[$4]++
      pid[$4] = $5; measured[$4]++; last_time[$4] = times; own[$1, $4] = $6; resident[$1, $4] = $7; threads[$1, $4] = $8; open[$1, $4] = $9
    }
    END {
      if (times < 4 || processes == 0) { print "too few measurements"; exit 1 }
      printf "%8s %11s %9s", "second", "step", "evaluated"
      for (p = 1; p <= processes; p++) printf " %14s", process[p]
      print "   (private MiB)"
      for (i = 1; i <= times; i++) {
        printf "%8d %11d %9d", time[i], step[i], evaluated[i]
        for (p = 1; p <= processes; p++)
          printf " %14s", ((time[i], process[p]) in own) ? sprintf("%.2f", own[time[i], process[p]] / 1024) : "-"
        print ""
      }
      first = time[1]; last = time[times]
      printf "\n%-16s %10s %10s %10s %12s %8s %6s %8s %9s  %s\n", "process", "early MiB", "late MiB", "grown KiB", "resident MiB", "files", "open", "threads", "replaced", "verdict"
      for (p = 1; p <= processes; p++) {
        name = process[p]
        end = measured[name] - 1
        part = end / 6
        early = median(name, "own", part, 2 * part)
        late = median(name, "own", end - part, end)
        more_files = median(name, "open", end - part, end) - median(name, "open", part, 2 * part)
        is_missing = early < 0 || measured[name] * 2 < times || last_time[name] < times - (times - 1) / 6
        is_flat = !is_missing && late - early <= bound && more_files <= 16
        if (!is_flat) grown++
        printf "%-16s %10.2f %10.2f %+10d %12.1f %+8d %6s %8s %9d  %s\n", name, early / 1024, late / 1024, late - early, at_end(resident, name) / 1024,
          more_files, at_end(open, name), at_end(threads, name), replaced[name], is_flat ? "flat" : (is_missing ? "MISSING" : "GROWN")
      }
      printf "\n%d steps and %d evaluated checkpoints in %d seconds; bound: %d KiB\n", step[times], evaluated[times], last - first, bound
      exit grown > 0
    }' "$1"
}
if [[ -n $measurements ]]; then
  report "$measurements" || exit 1
  exit 0
fi

# ---- Data and configuration

find_programs stokerd stoker-feed stoker-eval stokerctl
make_directory
measurements=$dir/memory.tsv
: >"$measurements"
given_config=$config
if [[ -z $config ]]; then
  config=$dir/config.yaml
  # One value cannot be parsed, so that sample errors and replacement samples are covered.
  write_table "$dir/table.csv" 9000
  cat >"$config" <<YAML
data:
  train: {format: csv, path: $dir/table.csv, fields: {label: kind}, split: [0.0, 0.9]}
  val: {format: csv, path: $dir/table.csv, fields: {label: kind}, split: [0.9, 1.0]}
feed: {num_workers: 2, num_processes: 2}
model: {name: mlp, hidden_sizes: [32], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.001}
train: {micro_batch_size: 16, device: cpu, num_threads: 1}
eval: {datasets: [val]}
YAML
fi

# ---- Programs

trainer=''
evaluator=''
clean_up() {
  local pid
  for pid in $trainer $evaluator; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [[ -z $scratch ]] || rm -rf "$scratch"
}
trap clean_up EXIT
"$bin/stokerd" --config "$config" --run-dir "$run" --set train.max_steps=1000000000000 --set checkpoint.save_every_steps=null \
  --set checkpoint.save_every_seconds=20 --set metrics.log_every_steps=100 --set metrics.tensorboard=true >"$dir/stokerd.out" 2>&1 &
trainer=$!

step_now() { tail -n 1 "$run/metrics/train.jsonl" 2>/dev/null | sed -n 's/^{"step":\([0-9]*\).*/\1/p'; }
trains() { has_ended "$trainer" || [[ -n $(step_now) ]]; }
wait_for 300 trains || fail_with_log stokerd "does not start to train"
! has_ended "$trainer" || fail_with_log stokerd "exited at startup"
"$bin/stoker-eval" --run-dir "$run" --follow >"$dir/stoker-eval.out" 2>&1 &
evaluator=$!

# ---- Measurements and disturbances

field() { awk -v name="$2:" '$1 == name { print $2 }' "/proc/$1/status" 2>/dev/null; }
children() { cat "/proc/$1/task/"*/children 2>/dev/null || true; }
# The worker index, or nothing for another process.
worker_index() { tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | sed -n '/^--worker-index$/ { n; p }' || true; }
descriptors() { find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l; }
# measure SECONDS: writes one line per process.
measure() {
  local step evaluated pid number name own
  step=$(step_now)
  evaluated=$(grep -c . "$run/metrics/eval.jsonl" 2>/dev/null || true)
  for pid in $trainer $(children "$trainer") $evaluator; do
    number=''
    case $pid in
      "$trainer") name=stokerd ;;
      "$evaluator") name=stoker-eval ;;
      *)
        number=$(worker_index "$pid")
        [[ -n $number ]] || continue
        name=stoker-feed/$number
        ;;
    esac
    own=$(field "$pid" RssAnon)
    [[ -n $own ]] || continue
    printf '%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\n' "$1" "${step:-0}" "${evaluated:-0}" "$name" "$pid" "$own" "$(field "$pid" VmRSS)" \
      "$(field "$pid" Threads)" "$(descriptors "$pid")" >>"$measurements"
  done
}
request() { "$bin/stokerctl" --run-dir "$run" "$@" >>"$dir/stokerctl.out" 2>&1 || printf 'stokerctl %s failed\n' "$*" >>"$dir/stokerctl.out"; }
# last_worker: the pid of the worker process with the highest index above 0, if there is one.
last_worker() {
  local pid last='' highest=0 number
  for pid in $(children "$trainer"); do
    number=$(worker_index "$pid")
    if [[ -n $number ]] && ((number > highest)); then
      highest=$number
      last=$pid
    fi
  done
  printf '%s' "$last"
}
is_replaced() {
  local pid
  pid=$(last_worker)
  has_ended "$trainer" || [[ -n $pid && $pid != "$1" ]]
}
kill_last_worker() {
  local pid
  pid=$(last_worker)
  [[ -n $pid ]] || return 0
  kill -KILL "$pid" 2>/dev/null || return 0
  wait_for 120 is_replaced "$pid" || fail_with_log stokerd "does not replace a killed worker process"
}
# inject_load NUMBER: simulates user requests and a crash.
inject_load() {
  request status
  case $(($1 % 5)) in
    0) request inspect '*' --steps 3 ;;
    1) request profile 20 ;;
    2) request checkpoint ;;
    3) request pause && request resume ;;
    4) request set optimizer.lr 0.0009 ;;
  esac
  if (($1 % 10 == 5)); then kill_last_worker; fi
}

count=$((seconds / every + 1))
say "Training for $seconds seconds, measuring $count times; measurements so far: scripts/soak.sh --report $measurements"
start=$SECONDS
for ((number = 0; number < count; number++)); do
  next=$((SECONDS + every))
  measure $((SECONDS - start))
  ! has_ended "$trainer" || fail_with_log stokerd "exited"
  ! has_ended "$evaluator" || fail_with_log stoker-eval "exited"
  ((number + 1 < count)) || break
  inject_load "$number"
  if ((next > SECONDS)); then sleep $((next - SECONDS)); fi
done

# ---- Shutdown

# The invalid value is read within the first epoch, however slow the machine is.
has_read_table() {
  local step
  step=$(step_now)
  has_ended "$trainer" || ((${step:-0} >= 18000 / 16))
}
if [[ -z $given_config ]]; then wait_for 600 has_read_table || fail_with_log stokerd "does not train"; fi
kill -TERM "$trainer"
wait_for 120 has_ended "$trainer" || fail_with_log stokerd "does not exit"
status=0
wait "$trainer" || status=$?
trainer=''
((status == 0)) || fail_with_log stokerd "exited with code $status"
wait_for 120 has_ended "$evaluator" || fail_with_log stoker-eval "does not exit after the run"
wait "$evaluator" || status=$?
evaluator=''
((status == 0)) || fail_with_log stoker-eval "exited with code $status"
report "$measurements" || die "memory is not flat"
