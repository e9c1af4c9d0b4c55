#!/usr/bin/env bash
# wheel_steps.sh ROOT PYTORCH: the part of wheel_test.sh with its own mount namespace. Installs ROOT/wheel/stoker-….whl
# in an environment with PyTorch, trains, evaluates and exports with it, and removes it. PYTORCH: site-packages with torch.
set -euo pipefail
root=${1:?give the root} pytorch=${2:?give site-packages with torch}
fail() {
  printf 'wheel_steps: %s\n' "$*" >&2
  exit 1
}
mkdir -p "$root"/{proc,dev,opt/pytorch,home/ann}
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind -o ro "$pytorch" "$root/opt/pytorch"
inside() { chroot "$root" env -i HOME=/home/ann PATH=/home/ann/venv/bin:/usr/bin:/bin LC_ALL=C.UTF-8 "$@"; }
expect_error() {
  local expected=$1 error code=0
  shift
  error=$(inside "$@" 2>&1) || code=$?
  # shellcheck disable=SC2053  # a pattern
  [[ $code == 78 && $error == $expected ]] || fail "$*: $code, $error"
}

wheel=$(basename "$root"/wheel/*.whl)
inside python3 -m venv /home/ann/venv
inside pip install --quiet --no-index --no-deps "/wheel/$wheel" || fail "pip install"
site=$(inside /home/ann/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
[[ $(inside stokerctl --version | head -n 1) == "stokerctl "* ]] || fail "stokerctl needs PyTorch"

# No PyTorch, another version, the right one: as pip would install it, next to stoker.
expect_error "stokerd: PyTorch is not installed in /home/ann/venv; run: /home/ann/venv/bin/python* -m pip install torch==*" stokerd --version
mkdir "$root$site/torch"
printf "__version__ = '2.10.0+cpu'\n" >"$root$site/torch/version.py"
touch "$root$site/torch/__init__.py"
expect_error "stoker-eval: $site/torch is PyTorch 2.10.0+cpu, and this stoker needs *; run: */python* -m pip install torch==*" stoker-eval --version
rm -r "$root$site/torch"
for entry in "$root"/opt/pytorch/*; do
  [[ -e $root$site/${entry##*/} ]] || ln -s "/opt/pytorch/${entry##*/}" "$root$site/"
done
inside python -c 'import importlib.metadata as m; needed = m.requires("stoker"); assert "torch==" + m.version("torch").split("+")[0] in needed, needed' ||
  fail "the wheel requires another PyTorch"
libraries=$(inside env LD_TRACE_LOADED_OBJECTS=1 "$site"/stoker/bin/stokerd | grep -E ' => ' | grep -vE " => $site/|/ld-linux|lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.so" || true)
[[ -z $libraries ]] || fail "stokerd uses libraries of the system: $libraries"
for program in "$root$site"/stoker/{bin/*,libexec/stoker/*,lib/stoker/*.so*}; do
  missing=$(inside env LD_TRACE_LOADED_OBJECTS=1 /lib64/ld-linux-x86-64.so.2 "${program#"$root"}" | grep 'not found' | grep -vE 'lib(torch_cuda|c10_cuda|cu[a-zA-Z]+|nv[a-z_]+|nccl)\.so' || true)
  [[ -z $missing ]] || fail "${program##*/}: $missing"
done

cat >"$root/home/ann/run.yaml" <<'YAML'
data:
  train: {format: synthetic, num_samples: 1000, input_shape: [32], num_classes: 4}
  val: {format: synthetic, num_samples: 64, input_shape: [32], num_classes: 4}
feed: {num_processes: 1}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
train: {max_steps: 20, micro_batch_size: 16, device: cpu, num_threads: 1}
YAML
inside stokerd --config /home/ann/run.yaml --run-dir /home/ann/run || fail "training"
inside stoker-eval --run-dir /home/ann/run || fail "evaluation"
[[ -s $root/home/ann/run/eval/step-000000020.json ]] || fail "step 20 was not evaluated"
[[ $(inside stokerctl --run-dir /home/ann/run status) == *finished* ]] || fail "stokerctl status"
[[ $(inside stoker-export --help) == usage:* ]] || fail "stoker-export"
[[ -s $root/home/ann/venv/share/man/man8/stokerd.8 ]] || fail "there is no man page in the environment"
# A pipe without a reader: Python ignores SIGPIPE, and the programs that it starts must not.
pipe=$root/home/ann/pipe
mkfifo "$pipe"
exec 3<>"$pipe"
exec 4>"$pipe"
exec 3<&-
code=0
inside stokerctl --help >&4 || code=$?
exec 4>&-
((code == 141)) || fail "stokerctl without a reader: $code"

# PyTorch of the system's packages below an environment: not next to stoker.
rm "$root$site"/{torch,nvidia}
sed -i 's/^include-system-site-packages = .*/include-system-site-packages = true/' "$root/home/ann/venv/pyvenv.cfg"
system=$(inside /usr/bin/python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$root$system"
ln -s /opt/pytorch/torch /opt/pytorch/nvidia "$root$system/"
[[ $(inside stokerd --version) == "stokerd "* ]] || fail "PyTorch of the system's packages is not found"

inside pip uninstall --quiet --yes stoker
left=$(find "$root/home/ann/venv" -name '*stoker*' ! -name '*.pyc' ! -name __pycache__ -not -type d)
[[ -z $left ]] || fail "pip uninstall leaves $left"
