#!/usr/bin/env bash
# Installs the libraries for stoker-bench --baselines, each in a separate Python environment.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help || $# != 1 ]]; then
  cat <<'HELP'
Usage: scripts/bench_baselines.sh FOLDER

Creates FOLDER/torch (PyTorch, torchvision, simplejpeg, SPDL, DALI, safetensors), FOLDER/tf (TensorFlow) and FOLDER/ffcv
(FFCV). Takes about 9 GB and a few minutes. Then, on an idle machine:

  STOKER_DATA=IMAGES build/release/bin/stoker-bench --only feed-images --baselines FOLDER --runs 5 --seconds 5
  STOKER_PYTHON=FOLDER/torch/bin/python build/release/bin/stoker-bench --only checkpoint-commit
  build/release/bin/stoker-bench --only queue --baselines FOLDER
  STOKER_PYTHON=FOLDER/torch/bin/python build/release/bin/stoker-bench-train

FFCV is compiled and requires Debian's libopencv-dev, libturbojpeg0-dev and pkg-config; SPDL requires ffmpeg.
HELP
  [[ ${1:-} == -h || ${1:-} == --help ]] && exit 0 || exit 64
fi

environment() {  # NAME PACKAGE…
  local python=$folder/$1/bin/python
  [[ -e $python ]] || python3 -m venv "$folder/$1"
  "$python" -m pip install --quiet "${@:2}"
}

folder=$1
mkdir -p "$folder"
step "PyTorch, torchvision, simplejpeg, SPDL, DALI" baselines-torch environment torch torch==2.11.0 torchvision==0.26.0 \
  numpy pillow safetensors simplejpeg spdl==0.8.0 spdl-io==0.8.0 nvidia-dali-cuda130==2.4.0
step "TensorFlow" baselines-tf environment tf tensorflow-cpu==2.21.0
step "FFCV" baselines-ffcv environment ffcv ffcv==1.0.2 pillow
