#!/usr/bin/env bash
# make_golden.sh BIN_DIR [tiny|sharded]: writes tests/golden/format-N, where N is the format in which the stokerd in
# BIN_DIR writes checkpoints of the run tiny.yaml, or sharded.yaml, which four processes train. Run once per format before
# its first release; existing files are never replaced.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: make_golden.sh BIN_DIR [tiny|sharded]}" && pwd)
name=${2:-tiny}
scratch=$(mktemp -d)
ranks=()
clean_up() {
  ((${#ranks[@]} == 0)) || kill "${ranks[@]}" 2>/dev/null || true
  rm -rf "$scratch"
}
trap clean_up EXIT

train=("$bin/stokerd" --config "$here/$name.yaml" --run-dir "$scratch/run")
if [[ $name == sharded ]]; then
  export WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-29511}"
  for rank in 0 1 2 3; do
    RANK=$rank LOCAL_RANK=$rank "${train[@]}" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank"; done
  ranks=()
else
  "${train[@]}"
fi
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
