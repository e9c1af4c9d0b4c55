#!/usr/bin/env bash
# Compares the metrics of reference runs with the same training in PyTorch.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/convergence.sh [--seeds N] [--threads N] [--steps N] DATA [gpt|cifar|digits]…

Trains the reference runs of bench/convergence with the programs of build/release, N times each with
another seed (default: 3), evaluates them and prints a Markdown table. If STOKER_PYTHON is set to a
Python with torch (cifar: and torchvision), each is compared with the same training in PyTorch.

DATA is a directory with the files of the selected runs:
  gpt     tinyshakespeare.txt
  cifar   cifar10/train/CLASS/*.jpg and cifar10/test/CLASS/*.jpg
  digits  digits/train-images, train-labels, val-images, val-labels (IDX, as in MNIST)

The runs, with a plot of each, are stored in build/convergence. Exit code 77: DATA lacks a required
file.
HELP
}

seeds=3
threads=2
steps=
while [[ ${1:-} == -* ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --seeds) seeds=$2 ;;
    --threads) threads=$2 ;;
    --steps) steps=$2 ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift 2
done
(($#)) || { usage >&2 && exit 64; }
data=$(realpath "$1")
shift
selected=("$@")
((${#selected[@]})) || selected=(gpt cifar digits)
out=$root/build/convergence
bin=$root/build/release/bin

required_file() {
  case $1 in
    gpt) echo tinyshakespeare.txt ;;
    cifar) echo cifar10/test ;;
    digits) echo digits/val-labels ;;
    *) die "$1 is not one of: gpt cifar digits" ;;
  esac
}

# The paths of the data files, as --set options.
paths() {
  case $1 in
    gpt) printf -- '--set\ndata.%s.path=%s/tinyshakespeare.txt\n' train "$data" val "$data" ;;
    cifar) printf -- '--set\ndata.%s.path=%s/cifar10/%s\n' train "$data" train val "$data" test ;;
    digits)
      local set
      for set in train val; do
        printf -- '--set\ndata.%s.path=%s\n--set\ndata.%s.labels_path=%s\n' \
          $set "$data/digits/$set-images" $set "$data/digits/$set-labels"
      done
      ;;
  esac
}

train_stoker() {
  local kind=$1 seed=$2 run=$out/$1-$2
  local -a more=()
  mapfile -t more < <(paths "$kind")
  [[ -z $steps ]] || more+=(--set "train.max_steps=$steps")
  rm -rf "$run"
  "$bin/stokerd" --config "$root/bench/convergence/$kind.yaml" --set "run.dir=$run" --set "run.seed=$seed" \
    --set "train.num_threads=$threads" "${more[@]}"
  "$bin/stoker-eval" --run-dir "$run" --once
  "$bin/stokerctl" --run-dir "$run" plot --output "$out/$kind-$seed.svg"
}

# Prints the metric NAME of our last evaluation, or from PyTorch's output line.
read_metric() { grep -oE "\"$1\": ?[0-9.e+-]+" "$2" | tail -n 1 | sed 's/.*: \{0,1\}//'; }

row() {
  local kind=$1 seed=$2 metric
  step "Train $kind, seed $seed" "convergence-$kind-$seed" train_stoker "$kind" "$seed"
  if [[ -n ${STOKER_PYTHON:-} ]]; then
    step "Train the same in PyTorch" "convergence-$kind-$seed-pytorch" "$STOKER_PYTHON" "$root/bench/convergence/baseline.py" "$kind" \
      "$data" "${steps:-$(sed -n 's/^train: {max_steps: \([0-9]*\).*/\1/p' "$root/bench/convergence/$kind.yaml")}" "$seed" "$threads"
  fi
  for metric in loss accuracy; do
    local mine='' theirs='-'
    mine=$(read_metric $metric "$out/$kind-$seed/metrics/eval.jsonl") || true
    [[ -n $mine ]] || continue
    [[ -z ${STOKER_PYTHON:-} ]] || theirs=$(read_metric $metric "$logs/convergence-$kind-$seed-pytorch.log") || true
    rows+=("$kind $seed $metric $mine ${theirs:--}")
  done
}

for kind in "${selected[@]}"; do
  [[ -e $data/$(required_file "$kind") ]] || { say "$kind: skipped: $data has no $(required_file "$kind")" && exit 77; }
done
mkdir -p "$out"
rows=()
for kind in "${selected[@]}"; do
  for ((seed = 1; seed <= seeds; ++seed)); do row "$kind" "$seed"; done
done

say ''
say '| run | metric | stoker, by seed | mean | PyTorch, by seed | mean | difference |'
say '|---|---|---|---|---|---|---|'
printf '%s\n' "${rows[@]}" | awk '
  { key = $1 " " $3; if (!(key in count)) order[++keys] = key; ++count[key]
    mine[key] = mine[key] sprintf(" %.4f", $4); sum[key] += $4
    theirs[key] = theirs[key] ($5 == "-" ? "" : sprintf(" %.4f", $5)); if ($5 != "-") { other[key] += $5; ++had[key] } }
  END { for (i = 1; i <= keys; ++i) { k = order[i]; split(k, word, " "); mean = sum[k] / count[k]
          if (had[k]) { theirs_mean = other[k] / had[k]; printf "| %s | %s |%s | %.4f |%s | %.4f | %+.2f %% |\n", word[1], word[2], mine[k], mean, theirs[k], theirs_mean, 100 * (mean / theirs_mean - 1) }
          else printf "| %s | %s |%s | %.4f | - | - | - |\n", word[1], word[2], mine[k], mean } }'
