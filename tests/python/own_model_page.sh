#!/usr/bin/env bash
# own_model_page.sh ROOT BIN: does what docs/own-model.md says, with its files and commands. Exits with 77 without PyTorch or scikit-learn.
set -eu
root=$1 bin=$2
. "$root/tests/parity/python_or_skip.sh"
choose_pytorch
require_modules 'torch, sklearn.datasets'
set -o pipefail
cd "$folder"

# The files of the page, which have their names in the first line, and its commands but for those that install.
"$python" - "$root/docs/own-model.md" <<'PYTHON'
import pathlib
import re
import sys

commands = []
for language, text in re.findall(r"```(\w+)\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.S):
    if language == "sh":
        commands += [line for line in text.splitlines() if not re.match(r"pip |stokerctl install-service", line)]
    else:
        name = re.match(r"# (\S+)\n", text).group(1)
        pathlib.Path(name).write_text(text)
pathlib.Path("commands").write_text("\n".join(commands) + "\n")
PYTHON

mkdir programs
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >programs/python
printf '#!/bin/sh\nPYTHONPATH="%s" exec python -m stoker_export "$@"\n' "$root/python" >programs/stoker-export
chmod +x programs/*
export PATH=$folder/programs:$bin:$PATH
bash -euxo pipefail commands | tee output

printed=$(sed -n 's/^accuracy //p' output)
"$python" - "$printed" <<'PYTHON'
import json
import pathlib
import sys

records = [json.loads(line) for line in pathlib.Path("runs/digits/metrics/eval.jsonl").read_text().splitlines()]
assert f"{records[-1]['accuracy']:.4f}" == sys.argv[1], (records[-1], sys.argv[1])
assert records[-1]["accuracy"] > 0.95, records[-1]
PYTHON
