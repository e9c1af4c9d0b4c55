#!/usr/bin/env bash
# Sets the LibTorch that an installed stoker uses. Installed as bin/stoker-libtorch.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: stoker-libtorch FOLDER | --python PYTHON | --show

Sets the LibTorch that this installed stoker uses. FOLDER contains include/ and lib/, such as site-packages/torch or an
unpacked libtorch zip; with --python it is the torch package of that Python. It must be the version that stoker was built
with (2.11), for the CPU or with CUDA. --show prints the current one.

If the installed tree is not writable, LD_LIBRARY_PATH=FOLDER/lib has the same effect for a single start.
HELP
}

die() {
  printf 'stoker-libtorch: %s\n' "$*" >&2
  exit "${code:-78}"
}

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
for libraries in "$here"/../{lib,lib64,lib/*-linux-gnu}/stoker; do
  [[ ! -d $libraries ]] || break
done
[[ -d $libraries ]] || die "$here/../lib/stoker does not exist: this is not an installed tree"

show() {
  local found
  found=$(ldd "$here/stokerd" | sed -n 's/^\s*libtorch_cpu\.so => \(\/.*\) (0x[0-9a-f]*)$/\1/p')
  [[ -n $found ]] || die "LibTorch is not found; give its folder, or --python PYTHON (see --help)"
  dirname "$(dirname "$(readlink -f "$found")")"
}

folder_of_python() {
  "$1" - <<'PYTHON'
import importlib.util

found = importlib.util.find_spec("torch")  # without importing it
if found is None or not found.submodule_search_locations:
    raise SystemExit("this Python has no package torch")
print(list(found.submodule_search_locations)[0])
PYTHON
}

case ${1:-} in
  -h | --help) usage && exit 0 ;;
  --show) show && exit 0 ;;
  --python)
    [[ $# == 2 ]] || { usage >&2 && exit 64; }
    folder=$(folder_of_python "$2") || die "$2 does not say where its torch is"
    ;;
  '' | -*) usage >&2 && exit 64 ;;
  *) folder=$1 ;;
esac
folder=$(cd "$folder" 2>/dev/null && pwd) || die "${folder}: is no folder"
[[ -e $folder/lib/libtorch_cpu.so ]] || die "$folder: has no lib/libtorch_cpu.so"
# Replace the link atomically, so that a stokerd that starts meanwhile finds the old or the new one.
ln -sfn "$folder" "$libraries/.torch.$$"
mv -T "$libraries/.torch.$$" "$libraries/torch"
"$here/stokerd" --version
show
