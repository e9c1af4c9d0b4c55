#!/usr/bin/env bash
# Installs and selects the LibTorch that an installed stoker uses. Installed as bin/stoker-libtorch.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: stoker-libtorch --install [--cuda] [FOLDER] | FOLDER | --python PYTHON | --show | --check

Selects the LibTorch that this installed stoker uses, after a training step with it has succeeded.

  --install        download the version that stoker was built with into FOLDER (default:
                   /opt/stoker/libtorch-VERSION) and select it; every file is verified by its SHA-256
    --cuda         with CUDA and NVIDIA's libraries: about 2 GB more
  FOLDER           select an existing one: a folder with lib/ (and include/ for plugins), such as
                   site-packages/torch or an unpacked libtorch zip
  --python PYTHON  select the torch package of this Python
  --show           print the folder of the selected one
  --check          verify that the selected one works

Its version must be the one that stoker was built with. LD_LIBRARY_PATH=FOLDER/lib has the same effect for a single start.
--install needs python3-venv and unzip. Without a network: put the wheels into a folder and set PIP_FIND_LINKS to it.
Exit codes: 0 success, 64 usage error, 69 download failed, 73 cannot write, 78 unusable LibTorch.
HELP
}

say() { printf '%s\n' "$*"; }
die() {
  printf 'stoker-libtorch: %s\n' "$*" >&2
  exit "${code:-78}"
}

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
for libraries in "$here"/../{lib,lib64,lib/*-linux-gnu}/stoker; do
  [[ ! -d $libraries ]] || break
done
[[ -d $libraries ]] || die "$here/../lib/stoker does not exist: this is not an installed tree"
libraries=$(cd "$libraries" && pwd)
pin_files=$here/../share/stoker/libtorch

# The link to write: a package has a link to one below /etc instead of the link itself.
link=$libraries/torch
is_package=no
if [[ $(readlink "$link" || true) == /etc/* ]]; then
  link=$(readlink "$link")
  is_package=yes
fi

scratch=
clean_up() { [[ -z $scratch ]] || rm -rf "$scratch"; }
trap clean_up EXIT

# The user of the service, if there is one: a folder that only root can read does not help it.
has_service_user() { ((EUID == 0)) && [[ $is_package == yes ]] && getent passwd stoker >/dev/null; }

# For try(); the user of the service can write to $scratch/service only.
make_scratch() {
  scratch=$(mktemp -d)
  chmod 755 "$scratch"
  mkdir -m 700 "$scratch/service"
  if has_service_user; then chown stoker: "$scratch/service"; fi
}

as_service() {
  if has_service_user; then
    setpriv --reuid=stoker --regid=stoker --clear-groups -- "$@"
  else
    "$@"
  fi
}

built_version() { cat "$pin_files/libtorch-version"; }
version_of() { sed -n "s/^__version__ = '\([^']*\)'.*/\1/p" "$1/version.py" 2>/dev/null || cat "$1/build-version" 2>/dev/null || true; }

# try FOLDER: trains a step with it. The text of an error goes to standard output.
try() {
  local environment=(env -u LD_PRELOAD LD_BIND_NOW=1 OMP_NUM_THREADS=1) version library
  [[ -e $1/lib/libtorch_cpu.so ]] || {
    say "has no lib/libtorch_cpu.so"
    return 1
  }
  version=$(version_of "$1")
  [[ -z $version || ${version%%+*} == "$(built_version)" ]] || {
    say "is version $version; stoker needs $(built_version)"
    return 1
  }
  cat >"$scratch/try.yaml" <<YAML
data: {train: {format: synthetic, num_samples: 8, input_shape: [4], num_targets: 1}}
feed: {num_processes: 0}
model: {name: mlp, hidden_sizes: [4]}
task: {name: regression}
train: {max_steps: 1, micro_batch_size: 4, device: cpu, num_threads: 1}
YAML
  # A library that this folder lacks, or that the user cannot read, would be found through the link.
  library=$(as_service "${environment[@]}" "LD_LIBRARY_PATH=$1/lib" ldd "$here/stokerd" |
    awk -v folder="$1/lib/" '/^[[:space:]]*lib(torch|c10)[^ ]* => / && !index($0, " => " folder) { print $1; exit }')
  [[ -z $library ]] || {
    say "lib/$library is missing or cannot be read"
    return 1
  }
  # Before the link changes, so that a stokerd that starts meanwhile finds a working LibTorch.
  (cd / && as_service "${environment[@]}" "LD_LIBRARY_PATH=$1/lib" "$here/stokerd" --config "$scratch/try.yaml" \
    --run-dir "$scratch/service/run") >"$scratch/output" 2>&1 && return
  say "does not work: $(tail -n 1 "$scratch/output")"
  if grep -q 'error while loading shared libraries: lib\(cu\|nv\)' "$scratch/output"; then
    say "its NVIDIA libraries are missing, which its CPU part needs as well: install them next to it (pip does so" \
      "unless --no-deps is given), or use stoker-libtorch --install"
  fi
  return 1
}

# What the CUDA module lacks, one per line.
missing_for_cuda() {
  LD_LIBRARY_PATH=$1/lib ldd "$libraries/libstoker_cuda.so" | sed -n 's/^\s*\(\S*\) => not found$/\1/p' | sort -u
}

report() {
  local version missing
  version=$(version_of "$1")
  if [[ ! -e $libraries/libstoker_cuda.so || ! -e $1/lib/libtorch_cuda.so ]]; then
    say "LibTorch ${version%%+*} for the CPU in $1"
    return
  fi
  missing=$(missing_for_cuda "$1" | paste -s -d ' ')
  if [[ -z $missing ]]; then
    say "LibTorch ${version%%+*} with CUDA in $1"
  else
    say "LibTorch ${version%%+*} in $1, for the CPU only: its CUDA part lacks $missing"
  fi
}

selected() {
  [[ -e $link ]] || die "no LibTorch is selected; run: stoker-libtorch --install (see --help)"
  readlink -f "$link"
}

show() {
  local found
  found=$(ldd "$here/stokerd" | sed -n 's/^\s*libtorch_cpu\.so => \(\/.*\) (0x[0-9a-f]*)$/\1/p')
  [[ -n $found ]] || selected >/dev/null
  [[ -n $found ]] || die "$(selected): has no lib/libtorch_cpu.so"
  dirname "$(dirname "$(readlink -f "$found")")"
}

check() {
  local folder error
  folder=$(selected)
  make_scratch
  error=$(try "$folder") || die "$folder: $error"
  report "$folder"
}

# Replaces the link atomically, so that a stokerd that starts meanwhile finds the old or the new one.
select_folder() {
  local folder=$1 error
  make_scratch
  error=$(try "$folder") || die "$folder: $error"
  if ! ln -sfn "$folder" "$link.$$" 2>/dev/null || ! mv -T "$link.$$" "$link"; then
    code=73 die "$link: cannot be written; run this as root"
  fi
  report "$folder"
  if [[ $is_package == yes && $(readlink -f "$folder") =~ ^/(home|root)/ ]]; then
    say "The services cannot use it, because their units hide /home and /root: move it to /opt and select it there, or" \
      "set ProtectHome=read-only in a drop-in (systemctl edit)"
  fi
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

# install_libtorch CUDA FOLDER
install_libtorch() {
  local folder=$2 work wheels pip files=("$pin_files/libtorch-cpu.txt") command
  umask 022  # the service reads it
  [[ $(uname -m) == x86_64 ]] || die "the pinned LibTorch is for x86_64; select another one"
  grep -q "^torch==$(built_version) " "${files[0]}" ||
    die "this stoker was built with LibTorch $(built_version), which is not the pinned version; select an existing one"
  if [[ $1 == yes ]]; then files+=("$pin_files/libtorch-cuda.txt"); fi
  if [[ -e $folder/.stoker-libtorch && $(cat "$folder/.stoker-libtorch") == "$(cat "${files[@]}" | sha256sum)" ]]; then
    say "$folder is already installed"
    select_folder "$folder/torch"
    return
  fi
  [[ ! -e $folder ]] || die "$folder: exists and is not complete; remove it, or name another folder"
  for command in python3 unzip; do
    command -v "$command" >/dev/null || code=69 die "$command is missing; run: apt install python3-venv unzip"
  done
  if ! mkdir -p "${folder%/*}" 2>/dev/null || [[ ! -w ${folder%/*} ]]; then
    code=73 die "${folder%/*}: cannot be written; run this as root, or name another folder"
  fi
  scratch=$(mktemp -d "$folder.XXXXXX")
  chmod 755 "$scratch"
  work=$scratch wheels=$scratch/wheels
  pip=(python3 -m pip)
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv" >/dev/null 2>&1 || code=69 die "pip is missing; run: apt install python3-venv"
    pip=("$work/venv/bin/python" -m pip)
  fi
  source "$pin_files/libtorch_wheels.sh"
  say "Downloading LibTorch $(built_version) ($([[ $1 == yes ]] && echo '2.5 GB' || echo '0.5 GB'))"
  # On a terminal, pip shows its progress.
  if [[ -t 1 ]]; then
    fetch_wheels "${files[@]}" || code=69 die "the download failed"
  else
    fetch_wheels "${files[@]}" >"$work/log" 2>&1 || {
      tail -n 5 "$work/log" >&2
      code=69 die "the download failed"
    }
  fi
  mkdir "$work/tree"
  unpack_wheels cpu "${files[0]}" "$work/tree"
  if [[ $1 == yes ]]; then
    unpack_wheels cuda-link "${files[0]}" "$work/tree"
    unpack_wheels cuda "${files[1]}" "$work/tree"
  fi
  cat "${files[@]}" | sha256sum >"$work/tree/.stoker-libtorch"
  mv -T "$work/tree" "$folder"
  clean_up
  scratch=
  select_folder "$folder/torch"
}

case ${1:-} in
  -h | --help) usage ;;
  --show) show ;;
  --check) check ;;
  --python)
    [[ $# == 2 ]] || { usage >&2 && exit 64; }
    folder=$(folder_of_python "$2") || die "$2 does not report the location of its torch"
    select_folder "$folder"
    ;;
  --install)
    shift
    cuda=no
    if [[ ${1:-} == --cuda ]]; then cuda=yes && shift; fi
    [[ $# -le 1 && ${1:-} != -* ]] || { usage >&2 && exit 64; }
    suffix=
    [[ $cuda == no ]] || suffix=-cuda
    install_libtorch "$cuda" "$(realpath -m "${1:-/opt/stoker/libtorch-$(built_version)$suffix}")"
    ;;
  '' | -*) usage >&2 && exit 64 ;;
  *)
    [[ $# == 1 ]] || { usage >&2 && exit 64; }
    folder=$(cd "$1" 2>/dev/null && pwd) || die "$1: is not a folder"
    select_folder "$folder"
    ;;
esac
