#!/usr/bin/env bash
# Compares stoker with TensorFlow's queues and PyTorch on two published experiments.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/published.sh [--rounds N] [--steps N] [--threads N] [--no-install] FOLDER [mlp|blstm]…

Trains the experiments of docs/published.md with the programs of build/release, with TensorFlow and with PyTorch, in turn, N
rounds (default: 1), then the same with a sleep instead of the step, which simulates a device. Prints Markdown tables, and
writes FOLDER/rows.jsonl and FOLDER/published.svg.

TensorFlow and PyTorch are installed into FOLDER/tensorflow and FOLDER/torch (2 GB). With --no-install, and if that fails, rows
without their package are omitted, with the reason. STOKER_TENSORFLOW_PYTHON and STOKER_PYTHON are used instead if they are set.

  --steps N     of every row, instead of those that were published
  --threads N   of every row (2)
HELP
}

rounds=1
steps=
threads=2
install=true
while [[ ${1:-} == -* ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --no-install) install=false && shift && continue ;;
    --rounds) rounds=${2:?} ;;
    --steps) steps=${2:?} ;;
    --threads) threads=${2:?} ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift 2
done
(($#)) || { usage >&2 && exit 64; }
folder=$(realpath -m "$1")
shift
experiments=("$@")
((${#experiments[@]})) || experiments=(mlp blstm)
bin=$root/build/release/bin
mkdir -p "$folder"

environment() {  # NAME PACKAGE…
  [[ -e $folder/$1/bin/python ]] || python3 -m venv "$folder/$1"
  "$folder/$1/bin/python" -m pip install --quiet "${@:2}"
}

tensorflow=${STOKER_TENSORFLOW_PYTHON:-$folder/tensorflow/bin/python}
torch=${STOKER_PYTHON:-$folder/torch/bin/python}
if [[ $install == true ]]; then
  [[ -n ${STOKER_TENSORFLOW_PYTHON:-} ]] || environment tensorflow tensorflow-cpu==2.21.0 || true
  [[ -n ${STOKER_PYTHON:-} ]] || environment torch torch==2.11.0 numpy || true
fi

has_tensorflow=true
has_torch=true
"$tensorflow" -c 'import tensorflow' 2>/dev/null || has_tensorflow=false
"$torch" -c 'import torch' 2>/dev/null || has_torch=false
[[ $has_tensorflow == true ]] || say "TensorFlow rows omitted: $tensorflow cannot import tensorflow"
[[ $has_torch == true ]] || say "PyTorch rows omitted: $torch cannot import torch"

# row EXPERIMENT SIMULATED COMMAND…: runs the command and adds its line to rows.jsonl.
row() {
  local experiment=$1 simulated=$2 began line
  shift 2
  began=$(now)
  if ! line=$("$@" 2>"$folder/error.log"); then
    say "$experiment: $(basename "$1") failed: $(tail -n 1 "$folder/error.log")"
    return 0
  fi
  line=$(tail -n 1 <<<"$line")
  printf '%-6s %s (%s)\n' "$experiment" "$line" "$(seconds_since "$began")"
  printf '{"experiment": "%s", "simulated": %s, %s\n' "$experiment" "$simulated" "${line#\{}" >>"$folder/rows.jsonl"
}

run_round() {  # EXPERIMENT SIMULATED
  local experiment=$1 simulated=$2 config=$root/config/published-$1.yaml input
  local -a more=(--threads "$threads") python=() device=()
  [[ -z $steps ]] || more+=(--steps "$steps")
  if [[ $simulated == true ]]; then
    python=(--simulated)
    device=(--device-ms "$(python3 "$root/bench/published_experiments.py" "$experiment")")
  fi
  if [[ $has_tensorflow == true ]]; then
    row "$experiment" "$simulated" "$tensorflow" "$root/bench/published_tensorflow.py" "$experiment" feed_dict "${more[@]}" "${python[@]}"
    row "$experiment" "$simulated" "$tensorflow" "$root/bench/published_tensorflow.py" "$experiment" FIFOQueue "${more[@]}" "${python[@]}"
  fi
  if [[ $has_torch == true ]]; then
    row "$experiment" "$simulated" "$torch" "$root/bench/published_pytorch.py" "$experiment" loop "${more[@]}" "${python[@]}"
    row "$experiment" "$simulated" "$torch" "$root/bench/published_pytorch.py" "$experiment" DataLoader "${more[@]}" "${python[@]}"
  fi
  for input in direct queue ring; do
    row "$experiment" "$simulated" "$bin/stoker-bench-published" --config "$config" --input "$input" "${more[@]}" "${device[@]}"
  done
  [[ $simulated == true ]] ||
    row "$experiment" "$simulated" python3 "$root/bench/published_stokerd.py" "$bin" "$config" "$folder/run-$experiment" "${more[@]}"
}

for experiment in "${experiments[@]}"; do
  [[ -e $root/config/published-$experiment.yaml ]] || die "$experiment is not one of: mlp blstm"
done
for program in stoker-bench-published stokerd stoker-eval; do
  [[ -x $bin/$program ]] || die "$bin/$program does not exist; build it with scripts/build.sh release"
done
rm -f "$folder/rows.jsonl"
for ((round = 1; round <= rounds; ++round)); do
  for simulated in false true; do
    for experiment in "${experiments[@]}"; do run_round "$experiment" "$simulated"; done
  done
done
say ''
python3 "$root/bench/published_table.py" "$folder/rows.jsonl" "$folder/published.svg"
