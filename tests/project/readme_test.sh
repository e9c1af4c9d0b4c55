#!/usr/bin/env bash
# readme_test.sh ROOT BIN: the configuration of README.md has eight lines, is accepted, trains on the C++ headers of this machine and is
# evaluated, with the commands that are printed there.
set -euo pipefail
root=${1:?give the root of the repository}
PATH=$(readlink -f "${2:?give the folder of the programs}"):$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'readme_test: %s\n' "$*" >&2
  tail -n 20 "$work"/*.out >&2 || true
  exit 1
}
# command_of NAME TEXT: the command of section Train that starts with NAME and contains TEXT.
command_of() { sed -n '/^## Train/,/^## /p' "$root/README.md" | sed -n "s/ *#.*//; s/ *&$//; /^$1 .*$2/p"; }

cd "$work"
awk '/^## Train/ { inside = 1 } inside && /^```yaml$/ { copies = 1; next } copies && /^```$/ { exit } copies' "$root/README.md" >gpt.yaml
[[ $(wc -l <gpt.yaml) == 8 ]] || fail "gpt.yaml has $(wc -l <gpt.yaml) lines, not eight"
check=$(command_of stokerd --check-config) train=$(command_of stokerd --run-dir) evaluate=$(command_of stoker-eval --follow)
[[ -n $check && -n $train && -n $evaluate ]] || fail "README.md lacks a command: $check; $train; $evaluate"

$check >resolved.yaml || fail "--check-config ended with $?"
stokerd --config resolved.yaml --check-config | cmp - resolved.yaml || fail 'the resolved configuration has another meaning'
# 20 steps of one thread, without the warm-up of 100.
$train --set train.max_steps=20 --set train.num_threads=1 --set scheduler.warmup_steps=0 --set metrics.log_every_steps=1 >stokerd.out 2>&1 || fail "stokerd ended with $?"
$evaluate --set eval.max_samples=8 --set train.num_threads=1 >stoker-eval.out 2>&1 || fail "stoker-eval ended with $?"

# Of 256 bytes that are equally likely, each has ln 256 = 5.545.
python3 - runs/gpt <<'PYTHON' || fail 'the losses differ'
import json, math, pathlib, sys
run = pathlib.Path(sys.argv[1])
losses = [json.loads(line)["loss"] for line in (run / "metrics/train.jsonl").read_text().splitlines()]
val = json.loads((run / "eval/best.json").read_text())
print(losses[0], losses[-1], val)
assert len(losses) == 20 and abs(losses[0] - math.log(256)) < 0.15, losses
assert losses[-1] < math.log(256) - 1, losses
results = [json.loads(path.read_text()) for path in (run / "eval").glob("step-*.json")]
assert results and all(result["datasets"]["val"]["loss"] < math.log(256) - 1 for result in results), results
PYTHON
