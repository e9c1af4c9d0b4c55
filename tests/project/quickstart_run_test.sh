#!/usr/bin/env bash
# quickstart_run_test.sh ROOT BIN: scripts/quickstart.sh with the programs in BIN, for a few steps. quickstart_test.sh tests
# its ways with fake programs.
set -euo pipefail
root=${1:?give the root of the repository}
export STOKER_BIN=${2:?give the folder of the programs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$root/scripts/quickstart.sh" --no-build --run-dir "$work/run" --set train.max_steps=20 --set checkpoint.save_every_steps=10 \
  --set eval.max_samples=8 --set eval.generate=null --set scheduler.warmup_steps=5 >"$work/out" 2>&1 ||
  { cat "$work/out" && exit 1; }
for text in '^finished +step 20/20' 'max_steps reached' '● val loss' '^best +val/loss .* at step' 'Text sampled from the best checkpoint' 'Next steps'; do
  grep -qE "$text" "$work/out" || { printf 'no "%s" in:\n' "$text" && cat "$work/out" && exit 1; }
done
"$STOKER_BIN/stokerctl" --run-dir "$work/run" verify --all
