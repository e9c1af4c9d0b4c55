#!/usr/bin/env bash
# make_golden.sh BIN_DIR: writes tests/golden/format-N, where N is the checkpoint format of the stokerd
# in BIN_DIR. Run once per format before its first release; existing files are never replaced.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: make_golden.sh BIN_DIR}" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$bin/stokerd" --config "$here/tiny.yaml" --run-dir "$scratch/run"
cd "$scratch/run"
format=$(sed -n 's/^{"format":\([0-9]*\),.*/\1/p' checkpoints/step-000000004/manifest.json)
golden=$here/format-$format
if [[ -e $golden ]]; then
  echo "$golden already exists: checkpoints of format $format must stay loadable unchanged" >&2
  exit 1
fi
mkdir -p "$golden/checkpoints" "$golden/metrics"
cp -a checkpoints/step-000000004 "$golden/checkpoints/"
cp -a metrics/train.jsonl "$golden/metrics/"
sed 's#^  dir: .*#  dir: golden#' config.yaml >"$golden/config.yaml"
chmod -R u=rwX,go=rX "$golden"
(cd "$golden/checkpoints/step-000000004" && sha256sum -c SHA256SUMS)
