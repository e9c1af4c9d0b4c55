#!/usr/bin/env bash
# Tests and measures stoker on a GPU, in parts whose results are kept. bench/gpu_check.py has the checks.
set -euo pipefail

readonly no_gpu=77
readonly cuda_version=13

usage() {
  cat <<'HELP'
Usage: gpu_check.sh [OPTION…] [FOLDER [PART…]]

Runs the tests that need a GPU, and compares training on it with eager PyTorch and torch.compile, one program at a time. Stops after
eight minutes; with the same FOLDER (default: ./gpu-check), the next call continues. Downloads nothing.

FOLDER/results.jsonl has a line for each check, FOLDER/page.md the tables, FOLDER/log the output of the programs.
bench/gpu_page.py FOLDER/results.jsonl docs/gpu.md writes the tables into the document.

PART, in this order: start, tests, resume, memory, gpt2, resnet50, steps, published, cifar10, sanitizer (default: all)

  --device DEVICE   cuda (default), cuda:1, cpu
  --limit SECONDS   of this call (480)
  --retry           repeat failed checks, too
  --cifar10 DATA    folder with train/CLASS/*.jpg and test/CLASS/*.jpg, or an archive of such a folder cifar10
  --quick           tiny sizes: tests that every check runs, measures nothing

From a checkout (scripts/gpu_check.sh, after scripts/build.sh release), from an installed tree, or from the archive of
scripts/gpu_pack.sh. There it uses the torch of STOKER_PYTHON (default: python3), whose version must be that of the build. It is
what stoker is compared with, too. Exit codes: 0 all checks passed, 1 one failed, 64 usage error, 75 call it again, 77 without a GPU,
78 libraries are missing.
HELP
}

die() {
  printf 'gpu_check: %s\n' "$*" >&2
  exit 78
}

device=cuda
options=()
while [[ ${1:-} == -* ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --quick | --retry) options+=("$1") && shift && continue ;;
    --device | --limit | --cifar10) (($# > 1)) || { usage >&2 && exit 64; } ;;&
    --device) device=$2 ;;
    --limit | --cifar10) options+=("$1" "$2") ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift 2
done

if [[ $device == cuda* ]] && ! nvidia-smi -L 2>/dev/null | grep GPU >/dev/null; then
  echo "gpu_check: no NVIDIA GPU found (nvidia-smi lists none); nothing was checked"
  exit "$no_gpu"
fi

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
python=${STOKER_PYTHON:-python3}
tree=$here/../../..

# In an installed tree: with the LibTorch of this Python, and with the libraries of the archive that the system lacks.
select_libraries() {
  local torch version built cuda missing
  torch=$("$python" -c 'import importlib.util as u; print(list(u.find_spec("torch").submodule_search_locations)[0])' 2>/dev/null) ||
    die "$python has no torch; set STOKER_PYTHON"
  version=$(sed -n "s/^__version__ = '\([^']*\)'.*/\1/p" "$torch/version.py")
  built=$(cat "$tree/share/stoker/libtorch/libtorch-version")
  cuda=$(sed -n "s/^cuda\b.*= '\([0-9]*\)[.'].*/\1/p" "$torch/version.py")
  if [[ ${version%%+*} != "$built" || ($device == cuda* && $cuda != "$cuda_version") ]]; then
    die "$torch is version $version${cuda:+ for CUDA $cuda}; stoker was built with $built for CUDA $cuda_version"
  fi
  # The driver's libcuda.so.1 may be found only through what is there.
  export LD_LIBRARY_PATH=$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  missing=$(missing_libraries)
  if [[ -n $missing && -d $tree/lib/stoker/system ]]; then
    LD_LIBRARY_PATH+=:$(cd "$tree/lib/stoker/system" && pwd):$(cd "$tree/lib/stoker" && pwd)
    missing=$(missing_libraries)
  fi
  [[ -z $missing ]] || die "libraries are missing: $missing"
}
missing_libraries() {
  ldd "$tree"/bin/{stokerd,stoker-eval,stokerctl} "$tree/libexec/stoker/stoker-feed" "$here"/{cuda_test,stoker-bench-device} 2>&1 |
    grep 'not found' | sort -u | paste -s -d ';' || true
}

if [[ -x $here/cuda_test ]]; then
  select_libraries
  tree=$(cd "$tree" && pwd)
  bench=$here/bench
  places=(--bin "$tree/bin" --tests "$here" --bench-bin "$here" --config "$tree/share/stoker/config")
  module=$tree/lib/stoker/libstoker_cuda.so
elif [[ -x $tree/bin/stokerd ]]; then
  die "the tests were not built when this was installed: scripts/build.sh release, then install again"
else
  build=$here/../build/release
  [[ -x $build/tests/cuda_test && -x $build/bin/stoker-bench-device ]] ||
    die "build first: scripts/build.sh release programs cuda_test stoker-bench-device"
  build=$(cd "$build" && pwd)
  bench=$here/../bench
  places=(--bin "$build/bin" --tests "$build/tests" --bench-bin "$build/bin" --config "$here/../config")
  module=$build/bin/libstoker_cuda.so
fi
if [[ -e $module ]]; then places+=(--module "$module"); fi
(($#)) || set -- gpu-check
exec "$python" "$bench/gpu_check.py" "${places[@]}" --device "$device" "${options[@]}" -- "$@"
