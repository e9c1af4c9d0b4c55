#!/bin/sh
# export_package.sh SOURCE_DIR BIN: runs the commands of README.md, "Your own model", with export_models.mlp in an empty
# virtual environment into which pip installs stoker-export. BIN: stokerd. Exits with code 77 without PyTorch or pip.
. "$1/tests/parity/python_or_skip.sh"
choose_pytorch
require_modules 'torch, safetensors.torch'
set -e
export PATH="$2:$PATH"
section=$(sed -n '/^## Your own model/,/^## Measured/p' "$1/README.md")
if ! "$python" -c 'from importlib.util import find_spec as f; assert f("pip") and f("setuptools") and f("venv")' 2>/dev/null; then
  echo "skipped: $python has no pip, setuptools or venv"
  exit 77
fi
cp -r "$1/python" "$folder/python"  # a build leaves files there
cp "$1/tests/python/export_models.py" "$folder"
cd "$folder"

# run NAME: the command of the README that starts with NAME.
run() {
  command=$(printf '%s\n' "$section" | sed -n "s/ *#.*//; /^$1 /p")
  [ -n "$command" ] || { echo "README.md has no command $1" >&2; exit 1; }
  echo "\$ $command"
  eval "$command"
}

# ---- pip install, and a source distribution. PyTorch is that of $python.
(cd python && "$python" -c 'from setuptools import build_meta; build_meta.build_sdist("..")' >/dev/null)
tar -tf stoker-*.tar.gz | grep -q /stoker_export/operators.txt
"$python" -m venv --without-pip venv
pip() {
  shift
  "$python" -m pip --python venv/bin/python install --quiet --no-index --no-deps --no-build-isolation "$@"
}
packages=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' >"$packages/torch.pth"
run pip
PATH="$folder/venv/bin:$PATH"
venv/bin/python - "$packages" <<'PYTHON'
import importlib.metadata, sys
import stoker_export
assert stoker_export.__file__.startswith(sys.argv[1]), stoker_export.__file__
assert "torch==" + stoker_export.TORCH_VERSION in importlib.metadata.requires("stoker")
PYTHON
mv "$packages/torch.pth" .
error=$(stoker-export export_models:mlp --output unused 2>&1) && exit 1
[ "$error" = "stoker-export: PyTorch is not installed: pip install torch==2.11.0" ] || { echo "$error"; exit 1; }
mv torch.pth "$packages"

# ---- stoker-export and stokerd
echo 'from export_models import mlp as make' >my_model.py
run stoker-export
cat >run.yaml <<'YAML'
data: {train: {format: synthetic, num_samples: 1000, input_shape: [32], num_classes: 4}}
model: {name: exported, path: my_model}
task: {name: classification}
train: {max_steps: 20, micro_batch_size: 16, device: cpu}
YAML
if [ -x "$2/stokerd" ]; then run stokerd; fi  # else not built
