#!/usr/bin/env bash
# Packs what scripts/gpu_check.sh needs into one archive, for a machine with a GPU and without a network.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

readonly max_mib=60

usage() {
  cat <<'HELP'
Usage: scripts/gpu_pack.sh [--build FOLDER] [--data ARCHIVE] [--without-cuda] [OUTPUT]

Packs the programs of a build (default: build/release), the CUDA module, the tests and benchmarks of a GPU, and the libraries that these
need into OUTPUT (default: build/gpu/stoker-gpu.tar.gz) of less than 60 MiB. First build them:

  scripts/deps.sh --cuda-link --nvcc && scripts/build.sh release programs cuda_test stoker-bench-device

LibTorch is not part of it: the machine needs a Python with the torch of the same version, for CUDA 13. It also needs bash, coreutils, tar,
gzip, ldd and glibc 2.34 or later. Libraries of this system that most systems have (libstdc++, libgcc_s, libsystemd and what that
needs) are in lib/stoker/system and used only if the machine lacks them.

  --data ARCHIVE   also this file: cifar10.tar.xz with cifar10/train/CLASS/*.jpg and cifar10/test/CLASS/*.jpg
  --without-cuda   without the CUDA module, to test the archive without LibTorch's CUDA part
HELP
}

build=$root/build/release
data=
with_cuda=yes
while [[ ${1:-} == -* ]]; do
  case $1 in
    -h | --help) usage && exit 0 ;;
    --without-cuda) with_cuda=no && shift && continue ;;
    --build) build=$(realpath "${2:?}") ;;
    --data) data=$(realpath "${2:?}") ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift 2
done
(($# <= 1)) || { usage >&2 && exit 64; }
output=$(realpath -m "${1:-$root/build/gpu/stoker-gpu.tar.gz}")
name=stoker-gpu

for file in bin/stokerd bin/stoker-bench-device tests/cuda_test; do
  [[ -x $build/$file ]] || die "$build/$file is missing; run: scripts/build.sh release programs cuda_test stoker-bench-device"
done
if [[ $with_cuda == yes && ! -e $build/bin/libstoker_cuda.so ]]; then
  die "$build/bin/libstoker_cuda.so is missing; run: scripts/deps.sh --cuda-link && scripts/build.sh release programs"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name
cmake --install "$build" --prefix "$tree" >/dev/null
rm "$tree"/lib/stoker/torch  # a link to the LibTorch of this machine
[[ $with_cuda == yes ]] || rm -f "$tree"/lib/stoker/libstoker_cuda.so
rm -rf "$tree"/{include,lib/cmake,share/man,share/zsh,share/fish,share/bash-completion}

# What the programs and the libraries of the tree need and the tree does not have, without LibTorch and glibc.
mkdir "$tree/lib/stoker/system"
ldd "$tree"/bin/stokerd "$tree"/libexec/stoker/gpu-check/{cuda_test,stoker-bench-device} "$tree"/bin/stokerctl "$tree"/lib/stoker/*.so* 2>/dev/null |
  sed -n 's/^.* => \(\/.*\) (0x[0-9a-f]*)$/\1/p' | sort -u | while read -r library; do
  case ${library##*/} in
    libtorch* | libc10* | libgomp* | libcu* | libnv* | ld-linux* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libutil.so*) ;;
    *) [[ -e $tree/lib/stoker/${library##*/} ]] || cp -L "$library" "$tree/lib/stoker/system/" ;;
  esac
done

ln -s libexec/stoker/gpu-check/gpu_check.sh "$tree/gpu_check.sh"
if [[ -n $data ]]; then
  mkdir "$tree/data"
  cp "$data" "$tree/data/"
fi
mkdir -p "${output%/*}"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$output.new" "$name"
bytes=$(stat -c %s "$output.new")
((bytes < max_mib << 20)) || die "the archive has $((bytes >> 20)) MiB, more than $max_mib"
mv "$output.new" "$output"
say "$output: $((bytes >> 20)) MiB. On the machine with a GPU:"
say "  tar -xzf ${output##*/} && $name/gpu_check.sh${data:+ --cifar10 $name/data/${data##*/}} RESULTS"
