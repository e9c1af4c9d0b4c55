#!/usr/bin/env bash
# Installs dependencies, builds, trains a model and shows the results.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/quickstart.sh [--new] [--cuda] [--no-build] [--run-dir DIR] [--config FILE] [--set KEY=VALUE]…

Trains a byte-level GPT on the C++ headers of this machine (config/cpp-gpt.yaml) while the evaluator
runs, then prints a table, a plot and generated text. Installed dependencies and existing builds are
reused.

  --new           start a new run even if an unfinished one could be resumed
  --cuda          install LibTorch's CUDA part even if no GPU is found
  --no-build      use the existing programs
  --run-dir DIR   run directory (default: runs/quickstart)
  --config FILE   train with this configuration
  --set KEY=VALUE override one key of the configuration, as with stokerd (repeatable)

Ctrl-C stops training: the current step is finished and a checkpoint saved. The next call resumes
the run. A finished run is not modified: the next call creates runs/quickstart-2, and so on.
HELP
}

run_dir=$root/runs/quickstart
config=$root/config/cpp-gpt.yaml
deps=()
settings=()
new=no
build=yes
while (($#)); do
  case $1 in
    --new) new=yes ;;
    --cuda) deps+=(--cuda) ;;
    --no-build) build=no ;;
    --run-dir | --config | --set)
      (($# > 1)) || { usage >&2 && exit 64; }
      case $1 in
        --run-dir) run_dir=$(realpath -m "$2") ;;
        --config) config=$(realpath -m "$2") ;;
        --set) settings+=(--set "$2") ;;
      esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift
done
bin=${STOKER_BIN:-$root/build/release/bin}
cd "$root"
[[ -e $config ]] || die "no such configuration: $config"

# ---- Programs

if [[ $build == yes ]]; then
  "$root/scripts/deps.sh" ${deps[@]+"${deps[@]}"}
  "$root/scripts/build.sh" release programs
fi
for program in stokerd stoker-feed stoker-eval stokerctl; do
  [[ -x $bin/$program ]] || die "$bin/$program is missing; run scripts/build.sh release programs"
done

# ---- Run directory

# Finished runs, and with --new all existing runs, are not modified.
is_unavailable() {
  [[ -d $1 ]] || return 1
  [[ $new == yes ]] || grep -qE '"state" *: *"finished"' "$1/exit_status.json" 2>/dev/null
}
first=$run_dir
for ((number = 2; ; number++)); do
  is_unavailable "$run_dir" || break
  run_dir=$first-$number
done
mkdir -p "$run_dir/logs"
# A short path for display and for commands that users type.
shown=$(realpath -m --relative-to="$root" "$run_dir")
[[ $shown != ../* ]] || shown=$run_dir

# ---- Train and evaluate

# The evaluator exits when it finds exit_status.json, so a file left by an earlier call must be
# removed first. stokerd removes it at its start; if stokerd exits before that, the file `ended`
# ends the wait. The evaluator runs in its own session, so that Ctrl-C stops only the trainer and
# the last checkpoint is still evaluated.
evaluator_log=$run_dir/logs/stoker-eval.out
ended=$run_dir/logs/.trainer-ended
rm -f "$ended"
# shellcheck disable=SC2016  # expanded by the inner shell
setsid bash -c 'while [[ -e $1/exit_status.json && ! -e $2 ]]; do sleep 0.1; done; exec "$3" --run-dir "$1" --follow' \
  stoker-eval "$run_dir" "$ended" "$bin/stoker-eval" >>"$evaluator_log" 2>&1 &
evaluator=$!
end_evaluator() {
  kill -TERM "$evaluator" 2>/dev/null || true
  wait "$evaluator" 2>/dev/null || true
}
trap end_evaluator EXIT
trap : INT  # stokerd handles Ctrl-C; this shell continues

say "Training into $shown (Ctrl-C stops cleanly; the evaluator writes to $shown/logs)"
status=0
"$bin/stokerd" --config "$config" --run-dir "$run_dir" ${settings[@]+"${settings[@]}"} || status=$?
if ((status != 0)); then
  printf 'stokerd failed with exit code %d; its log: %s/logs/stokerd.log\n' "$status" "$shown" >&2
  exit "$status"
fi

touch "$ended"
say "Training has ended; waiting for the evaluator's last result (Ctrl-C skips it)"
if ! wait "$evaluator"; then
  say "The evaluator did not exit normally; its output: $evaluator_log"
fi
end_evaluator
rm -f "$ended"
trap - EXIT INT

# ---- Results

# If a part fails, report it, show the remaining ones, and fail at the end.
shown_all=yes
show() {
  say ""
  "$@" || {
    printf '%s failed with exit code %d\n' "$(basename "$1") ${*: -1}" "$?" >&2
    shown_all=no
  }
}
show "$bin/stokerctl" --run-dir "$run_dir" report
if grep -q 'name: language_modeling' "$run_dir/config.yaml"; then
  say ""
  say "Text sampled from the best checkpoint:"
  show "$bin/stoker-eval" --run-dir "$run_dir" --generate 300
fi

short_bin=$(realpath -m --relative-to="$root" "$bin")
[[ $short_bin != ../* ]] || short_bin=$bin
cat <<NEXT

Next steps:
  $short_bin/stokerctl --run-dir $shown list                   list checkpoints
  $short_bin/stokerctl --run-dir $shown verify                 verify the checksums of the newest
  $short_bin/stokerctl --run-dir $shown status                 show the status of an active run
  tail -f $shown/logs/stokerd.log
  tensorboard --logdir $shown/tensorboard
  $short_bin/stokerd --config ${config#"$root"/} --run-dir runs/mine --set train.max_steps=20000
NEXT
[[ $shown_all == yes ]]
