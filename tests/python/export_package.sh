#!/bin/sh
# export_package.sh SOURCE_DIR FOLDER: exports export_models.mlp into FOLDER/mlp with stoker-export, unless that was
# done by the same sources. Exits with code 77 if there is no PyTorch.
. "$1/tests/parity/python_or_skip.sh"
stamp=$(cat "$1"/python/stoker_export/*.py "$1/tests/python/export_models.py" | sha256sum)
if [ "$(cat "$2/mlp.stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
mkdir -p "$2"
rm -f "$2/mlp.stamp"
export TORCHINDUCTOR_CACHE_DIR="$folder/cache" PYTHONPATH="$1/python:$1/tests/python"
"$python" -m stoker_export export_models:mlp --output "$2/mlp" --max-batch 64 --overwrite || exit 1
echo "$stamp" >"$2/mlp.stamp"
