# Sourced by deps.sh and by the installed stoker-libtorch: downloads the wheels that libtorch-*.txt
# pins and unpacks LibTorch from them. Every wheel is verified against its SHA-256.
#
# The functions also fail where the caller disables set -e. Set before use: wheels (the folder of the downloads, which is kept), work (a temporary folder), pip
# (the command).
# shellcheck shell=bash disable=SC2154  # variables of the script that sources this

# "name==version sha256" of every wheel pinned in the requirement files.
pins() { sed -e '/^#/d' -e 's/ *\\$//' "$@" | paste -d ' ' - - | sed -E 's/ +--hash=sha256:/ /'; }

# Prints the cached wheel with this SHA-256; fails if there is none. The index is built once, by
# hashing.
wheel_of() { awk -v sha="$1" '$1 == sha { print $2; found = 1; exit } END { exit !found }' "$work/wheels.sha256"; }
index_wheels() { find "$wheels" -maxdepth 1 -name '*.whl' -exec sha256sum {} + >"$work/wheels.sha256"; }

fetch_wheels() {
  local name sha platform platforms=() progress=off
  if [[ -t 1 ]]; then progress=on; fi
  mkdir -p "$wheels"
  index_wheels
  : >"$work/missing.txt"
  while read -r name sha; do
    wheel_of "$sha" >/dev/null || printf '%s --hash=sha256:%s\n' "$name" "$sha" >>"$work/missing.txt"
  done < <(pins "$@")
  [[ -s $work/missing.txt ]] || return 0
  for platform in manylinux_2_{28,27,26,25,24,23,22,21,20,19,18,17,12,5} manylinux2014 manylinux2010 manylinux1; do
    platforms+=(--platform "${platform}_x86_64")
  done
  # Download to a temporary folder first, so that an interrupted download is never used as a wheel.
  "${pip[@]}" download --require-hashes --no-deps --only-binary=:all: --no-cache-dir --progress-bar "$progress" \
    --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none "${platforms[@]}" \
    -d "$work/download" -r "$work/missing.txt" || return
  mv "$work"/download/*.whl "$wheels/" || return
  index_wheels
}

# Omits the Python parts: the tree is only for compilers and linkers.
unpack_cpu() {
  unzip -q -o "$1" 'torch/include/*' 'torch/lib/*.so*' 'torch/share/cmake/*' 'torch/version.py' '*.dist-info/METADATA' \
    '*.dist-info/licenses/*' -x 'torch/lib/*cuda*' 'torch/lib/libcaffe2_nvrtc.so' 'torch/lib/libtorch.so' \
    'torch/lib/libtorch_python.so' 'torch/lib/libtorch_nvshmem.so' 'torch/lib/libshm.so' -d "$2"
}
unpack_cuda_link() {
  unzip -q -o "$1" 'torch/lib/*cuda*.so' 'torch/lib/libcaffe2_nvrtc.so' 'torch/lib/libtorch_nvshmem.so' \
    'torch/lib/libtorch.so' -d "$2"
}
unpack_nccl_header() { unzip -q -o "$1" 'nvidia/nccl/include/nccl.h' -d "$2"; }
unpack_nvidia() { unzip -q -o "$1" 'nvidia/*' '*.dist-info/*' -d "$2"; }

# unpack_wheels PART FILE FOLDER: the wheels of FILE, or the part of them that PART (cpu, cuda-link, nccl,
# cuda) needs.
unpack_wheels() {
  local name sha
  while read -r name sha; do
    case $1:$name in
      cpu:torch==*) unpack_cpu "$(wheel_of "$sha")" "$3" ;;
      cuda-link:torch==*) unpack_cuda_link "$(wheel_of "$sha")" "$3" ;;
      cuda-link:*) ;;
      nccl:nvidia-nccl-*) unpack_nccl_header "$(wheel_of "$sha")" "$3" ;;
      nccl:*) ;;
      *) unpack_nvidia "$(wheel_of "$sha")" "$3" ;;
    esac
  done < <(pins "$2")
}
