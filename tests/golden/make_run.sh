#!/usr/bin/env bash
# make_run.sh BIN_DIR: writes tests/golden/run-VERSION, the directory of the run run.yaml, by the programs of a release in
# BIN_DIR: trained to step 12 and evaluated. Run once per release. Remove the directory first to write it again before that release.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: make_run.sh BIN_DIR}" && pwd)
version=$("$bin/stokerd" --version | sed -n '1s/^stokerd \([0-9.]*\).*/\1/p')
golden=$here/run-$version
if [[ -e $golden ]]; then
  echo "$golden already exists: run directories of $version must stay readable unchanged" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
run=$scratch/run

"$bin/stokerd" --config "$here/run.yaml" --run-dir "$run"
"$bin/stoker-eval" --run-dir "$run" --once

# Without what is of this machine, or is written again at each start.
(cd "$run" && rm -rf logs tensorboard eval/LOCK LOCK control.sock)
find "$run" -type l -name latest -delete
sed -i 's#^  dir: .*#  dir: golden#' "$run/config.yaml"
cp -a "$run" "$golden"
chmod -R u=rwX,go=rX "$golden"
find "$golden" -type f -printf '%P %s\n' | sort
