#!/bin/sh
# export_package.sh SOURCE_DIR FOLDER BIN: runs the commands of README.md, "Your own model", with export_models.mlp in an
# empty virtual environment into which pip installs stoker-export, and moves the package to FOLDER/mlp. BIN: stokerd. With
# STOKER_FAULT_TESTS=full also exports the other modules of export_models. Nothing is done again for the same sources.
# Exits with code 77 without PyTorch or pip.
. "$1/tests/parity/python_or_skip.sh"
choose_pytorch
require_modules 'torch, safetensors.torch'
set -e
out=$2
export PATH="$3:$PATH" TORCHINDUCTOR_CACHE_DIR="$folder/cache"
names=mlp
if [ "${STOKER_FAULT_TESTS:-}" = full ]; then names='mlp mlp_bf16 gpt tagger'; fi
section=$(sed -n '/^## Your own model/,/^## Measured/p' "$1/README.md")
stamp=$({
  cat "$1"/python/pyproject.toml "$1"/python/stoker_export/*.py "$1/tests/python/export_models.py"
  printf '%s\n' "$section"
} | sha256sum)
stale=
for name in $names; do
  if [ "$(cat "$out/$name.stamp" 2>/dev/null)" != "$stamp" ]; then stale="$stale $name"; fi
done
if [ -z "$stale" ]; then exit 0; fi
if ! "$python" -c 'from importlib.util import find_spec as f; assert f("pip") and f("setuptools") and f("venv")' 2>/dev/null; then
  echo "skipped: $python has no pip, setuptools or venv"
  exit 77
fi
mkdir -p "$out"
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
tar -tf stoker_export-*.tar.gz | grep -q /stoker_export/compiler.py
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
assert "torch==" + stoker_export.TORCH_VERSION in importlib.metadata.requires("stoker-export")
PYTHON
mv "$packages/torch.pth" .
error=$(stoker-export export_models:mlp --output unused 2>&1) && exit 1
[ "$error" = "stoker-export: PyTorch is not installed: pip install torch==2.11.0" ] || { echo "$error"; exit 1; }
mv torch.pth "$packages"

# ---- stoker-export and stokerd
for name in $stale; do
  rm -f "$out/$name.stamp"
  case $name in
    mlp)
      echo 'from export_models import mlp as make' >my_model.py
      run stoker-export
      cat >run.yaml <<'YAML'
data: {train: {format: synthetic, num_samples: 1000, input_shape: [32], num_classes: 4}}
model: {name: exported, path: my_model}
task: {name: classification}
train: {max_steps: 20, micro_batch_size: 16, device: cpu}
YAML
      if [ -x "$3/stokerd" ]; then run stokerd; fi  # else not built
      rm -r my_model
      stoker-export --compile export_models:mlp --output my_model
      ;;
    mlp_bf16) stoker-export --compile export_models:mlp --output my_model --precision bf16 ;;
    gpt) stoker-export --compile export_models:gpt --output my_model --max-batch 32 ;;
    *) stoker-export --compile "export_models:$name" --output my_model ;;
  esac
  rm -rf "${out:?}/$name"
  mv my_model "$out/$name"
  echo "$stamp" >"$out/$name.stamp"
done
