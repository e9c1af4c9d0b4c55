#!/usr/bin/env bash
# gpu_pack_test.sh ROOT BUILD: packs a build with scripts/gpu_pack.sh, unpacks it into an empty folder, starts every program with the
# torch of STOKER_PYTHON, and runs every check of gpu_check.sh on the CPU. Skipped without such a Python.
set -euo pipefail
root=${1:?give the root of the repository} build=${2:?give the build folder}
python=${STOKER_PYTHON:-python3}
if ! "$python" -c 'import torch, PIL; assert torch.__version__.startswith("'"$(cat "$build/generated/libtorch-version")"'")' 2>/dev/null; then
  echo "$python has no torch of the version of the build, or no pillow; skipped"
  exit 77
fi
for program in bin/stokerd bin/stoker-bench-device tests/cuda_test; do
  [[ -x $build/$program ]] || { echo "$program is not built; skipped" && exit 77; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'gpu_pack_test: %s\n' "$*" >&2
  exit 1
}

# Images as of CIFAR-10, two of each class.
"$python" - "$scratch" <<'PYTHON'
import sys, tarfile
from pathlib import Path
from PIL import Image
root = Path(sys.argv[1])
for part in ("train", "test"):
    for label in ("airplane", "automobile"):
        folder = root / "cifar10" / part / label
        folder.mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (32, 32), (i * 30, 100, 200)).save(folder / f"{i:04}.jpg")
with tarfile.open(root / "cifar10.tar.xz", "w:xz") as archive:
    archive.add(root / "cifar10", "cifar10")
PYTHON

cuda=()
[[ -e $build/bin/libstoker_cuda.so ]] || cuda=(--without-cuda)
"$root/scripts/gpu_pack.sh" --build "$build" --data "$scratch/cifar10.tar.xz" "${cuda[@]}" "$scratch/pack.tar.gz" >"$scratch/pack.log" 2>&1 ||
  fail "packing failed: $(cat "$scratch/pack.log")"
tail -n 2 "$scratch/pack.log"
mkdir "$scratch/far away"
tar -C "$scratch/far away" -xzf "$scratch/pack.tar.gz"
tree="$scratch/far away/stoker-gpu"
[[ ! -e $tree/lib/stoker/torch ]] || fail "the archive is bound to a LibTorch"

# Every program starts, with nothing of this machine but LibTorch and the system.
torch=$("$python" -c 'import torch; print(torch.__path__[0])')
while read -r program; do
  (cd / && env -i PATH=/usr/bin:/bin "LD_LIBRARY_PATH=$torch/lib" LD_BIND_NOW=1 "$program" --help) >"$scratch/help" 2>&1 ||
    fail "$program does not start: $(tail -n 1 "$scratch/help")"
  [[ -s $scratch/help ]] || fail "$program --help prints nothing"
done < <(find "$tree/bin" "$tree/libexec" -type f -perm -u+x ! -name '*.py')

# The benchmark takes all fused kernels, or some by name. There are none for the CPU.
for names in 1 adamw,gelu adamw,gleu; do
  output=$(LD_LIBRARY_PATH=$torch/lib STOKER_BENCH_DEVICE=cpu STOKER_BENCH_FUSED_KERNELS=$names \
    "$tree/libexec/stoker/gpu-check/stoker-bench-device" --quick --only device-mlp 2>&1) && fail "trains with fused kernels on the CPU: $output"
  reason='there are no fused kernels for cpu'
  [[ $names != *gleu ]] || reason="there is no kernel 'gleu'; use 1 or some of adamw cross_entropy gelu norm rope swiglu"
  [[ $output == *"$reason"* ]] || fail "STOKER_BENCH_FUSED_KERNELS=$names: $output"
done

# stokerd says whether the module has fused kernels. Each of their files has machine code for each generation that docs/gpu.md lists, and
# PTX of the last one: a container starts with its magic number, the size of its header and of its entries; an entry has its kind (2 is
# machine code, 1 PTX), both sizes, and the compute capability.
if [[ -e $tree/lib/stoker/libstoker_cuda.so ]]; then
  version=$(LD_LIBRARY_PATH=$torch/lib "$tree/bin/stokerd" --version)
  "$python" - "$tree/lib/stoker/libstoker_cuda.so" "$version" <<'PYTHON' || fail "the module has not the kernels it should have; $version"
import struct, sys
module, containers = open(sys.argv[1], "rb").read(), []
start = module.find(b"\x50\xed\x55\xba")
while start >= 0:
    header_size, size = struct.unpack_from("<6xHQ", module, start)
    entry, end, entries = start + header_size, start + header_size + size, []
    while entry < end:
        kind, entry_header_size, entry_size, capability = struct.unpack_from("<H2xIQ12xI", module, entry)
        entries.append((kind, capability))
        entry += entry_header_size + entry_size
    containers.append(entries)
    start = module.find(b"\x50\xed\x55\xba", end)
print("kernels:", containers)
has_kernels = "with fused kernels" in sys.argv[2]
assert bool(containers) == has_kernels and all(sorted(entries) == [(1, 100), (2, 80), (2, 90), (2, 100)] for entries in containers)
PYTHON
fi

# The copies of the system's libraries are complete: each finds what it needs there, or it is part of glibc.
outside=$(LD_LIBRARY_PATH=$tree/lib/stoker/system:$tree/lib/stoker ldd "$tree"/lib/stoker/system/*.so* | sed -n 's/^\s*\(\S*\) => \(\S.*\)$/\1 \2/p' |
  grep -vF "$tree/lib/stoker/" | grep -vE '^(libc|libm|libdl|librt|libpthread|libresolv)\.so' || true)
[[ -z $outside ]] || fail "libraries of the system are not in the archive: $outside"

# Test programs skip the exit handlers of LibTorch, but not next to the driver's library, where compute-sanitizer may report in one.
for name in libcuda.so.1 libother.so.1; do
  cc -shared -fPIC "-Wl,-soname,$name" -x c -o "$scratch/$name" - <<'C'
#include <stdio.h>
__attribute__((destructor)) static void end(void) { puts("exit handler"); }
C
  output=$(LD_LIBRARY_PATH=$torch/lib LD_PRELOAD=$scratch/$name "$tree/libexec/stoker/gpu-check/cuda_test" --gtest_list_tests)
  [[ $output == *'exit handler'* ]] && has_ended=libcuda.so.1 || has_ended=libother.so.1
  [[ $has_ended == "$name" ]] || fail "cuda_test next to $name: $output"
done

# Another version of torch is rejected before anything starts.
mkdir -p "$scratch/other/torch"
echo "__version__ = '2.10.0+cu130'" >"$scratch/other/torch/version.py"
touch "$scratch/other/torch/__init__.py"
gpu_check() { (cd "$scratch" && STOKER_PYTHON=$python "$tree/gpu_check.sh" --device cpu --quick "$@") >"$scratch/output" 2>&1; }
PYTHONPATH=$scratch/other gpu_check "$scratch/results" && code=0 || code=$?
[[ $code == 78 && $(cat "$scratch/output") == *'is version 2.10.0+cu130; stoker was built with '* ]] || fail "another torch: exit $code, $(cat "$scratch/output")"

# All checks on the CPU. What needs a GPU or takes long is skipped, and nothing fails.
gpu_check --limit 3000 --cifar10 "$tree/data/cifar10.tar.xz" "$scratch/results" || fail "exit $?: $(cat "$scratch/output")"
status_of() { sed -n "s/.*\"check\": \"$1\", \"status\": \"\([^\"]*\)\".*/\1/p" "$scratch/results/results.jsonl"; }
skipped=$(grep -c '"status": "skipped"' "$scratch/results/results.jsonl")
for check in libraries stoker-libtorch 'first steps' attention 'bit-exact resume' 'bit-exact pause --release' 'mlp stokerd' 'mlp loop' 'mlp DataLoader' 'mlp compiled' 'gpt2 stoker' 'gpt2 eager' \
  'resnet50 eager' 'blstm stoker' 'blstm eager' 'exported mlp' 'gpt2 in stokerd' cifar10; do
  [[ $(status_of "$check") == passed ]] || fail "$check: $(grep -F "\"$check\"" "$scratch/results/results.jsonl")"
done
# cuda_test twice, the fused kernels four times, the published blstm three times, compilation three times, exported modules three times, copies to the host, and
# compute-sanitizer unless it is installed.
((skipped <= 17)) || fail "$skipped checks are skipped: $(grep '"skipped"' "$scratch/results/results.jsonl")"
for text in '### no GPU (cpu) (' '| bit-exact resume | passed |' '| mlp | PyTorch, loop |' '| allocated |'; do
  grep -qF -- "$text" "$scratch/results/page.md" || fail "the page lacks '$text': $(cat "$scratch/results/page.md")"
done
if [[ -e $tree/lib/stoker/libstoker_cuda.so ]] && ! nvidia-smi -L >/dev/null 2>&1; then
  # The module loads; only the device is missing.
  output=$(cd / && LD_LIBRARY_PATH=$torch/lib "$tree/libexec/stoker/gpu-check/cuda_test" 2>&1) || true
  [[ $output == *'no CUDA device available'* ]] || fail "the CUDA module does not load: $output"
fi
