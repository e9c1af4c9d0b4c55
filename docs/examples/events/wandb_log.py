#!/usr/bin/env python3
"""Writes the metrics of a run for Weights & Biases without a network, for run.on_event_command.
Requires wandb.

    run:
      on_event_command:
        - events: daemon exited
          command: [/opt/wandb/bin/python, /usr/share/stoker/events/wandb_log.py, my-project]

The run is written to RUN/wandb/offline-run-…; `wandb sync RUN/wandb/offline-run-…` uploads it from
a machine with a network. A resumed run continues the same one, by the name of its directory.
"""

import json
import pathlib
import re
import sys

import wandb


def read_records(path):
    if not path.exists():
        return
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def main():
    event = json.loads(sys.stdin.readline())
    run_dir = pathlib.Path(event["run_dir"])
    rows = {}  # by step, in which W&B wants them
    for name in ("train", "eval"):
        for record in read_records(run_dir / "metrics" / f"{name}.jsonl"):
            row = rows.setdefault(record["step"], {})
            prefix = record.get("dataset", "train")
            for key, value in record.items():
                if key != "step" and isinstance(value, (int, float)):
                    row[f"{prefix}/{key}"] = value
    run = wandb.init(
        mode="offline",
        project=sys.argv[1],
        dir=str(run_dir),
        id=re.sub("[^A-Za-z0-9_-]", "-", run_dir.name),
        name=run_dir.name,
        resume="allow",
        settings=wandb.Settings(console="off"),
    )
    run.save(str(run_dir / "config.yaml"), policy="now")
    for step in sorted(rows):
        run.log(rows[step], step=step)
    run.finish(exit_code=int(event["exit_code"]))


if __name__ == "__main__":
    main()
