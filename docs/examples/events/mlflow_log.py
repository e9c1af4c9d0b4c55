#!/usr/bin/env python3
"""Copies the metrics of a run to MLflow, for run.on_event_command. Requires mlflow-skinny or mlflow.

    run:
      on_event_command:
        - events: ["daemon started", "checkpoint saved", "daemon exited"]
          command: [/opt/mlflow/bin/python, /usr/share/stoker/events/mlflow_log.py, http://localhost:5000, my-experiment]

Each event copies the records that metrics/*.jsonl has gained; an evaluation that ends after "daemon exited"
needs another one. RUN/mlflow.json has the ID of the MLflow run, the copied bytes and the last step of them.
"""

import json
import pathlib
import sys
import time

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

BATCH = 1000  # the limit of a request


def read_new(path, position, last_step):
    """The records of the complete lines after `position`, and its new value. A rollback truncates the file and
    other lines follow: if none begins at `position`, all records of steps after `last_step`."""
    if not path.exists():
        return [], 0
    with path.open("rb") as file:
        file.seek(max(position - 1, 0))
        is_same = position == 0 or file.read(1) == b"\n"
        if not is_same:
            file.seek(0)
        text = file.read()
        end = text.rfind(b"\n") + 1
        records = [json.loads(line) for line in text[:end].splitlines()]
        if not is_same:
            records = [record for record in records if record["step"] > last_step]
        return records, file.tell() - len(text) + end


def metrics_of(records, timestamp):
    for record in records:
        prefix = record.get("dataset", "train")
        for name, value in record.items():
            if name != "step" and isinstance(value, (int, float)):
                yield Metric(f"{prefix}/{name}", value, timestamp, record["step"])


def settings_of(path):
    """The lines of config.yaml, which has one setting per line, as parameters."""
    sections = []
    for line in path.read_text(encoding="utf-8").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, value = line.strip().partition(":")
        sections[depth:] = [key]
        if value and not key.startswith("-"):
            yield Param(".".join(sections), value.strip()[:6000])


def main():
    event = json.loads(sys.stdin.readline())
    run_dir = pathlib.Path(event["run_dir"])
    client = MlflowClient(tracking_uri=sys.argv[1])
    state_file = run_dir / "mlflow.json"
    if state_file.exists():
        state = json.loads(state_file.read_text())
    else:
        experiment = client.get_experiment_by_name(sys.argv[2])
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(sys.argv[2])
        run = client.create_run(experiment_id, run_name=run_dir.name)
        state = {"run_id": run.info.run_id, "positions": {}, "has_settings": False}
    state.setdefault("last_steps", {})
    run_id = state["run_id"]
    if not state["has_settings"] and (run_dir / "config.yaml").exists():
        settings = list(settings_of(run_dir / "config.yaml"))
        for i in range(0, len(settings), 100):
            client.log_batch(run_id, params=settings[i : i + 100])
        state["has_settings"] = True
    timestamp = int(time.time() * 1000)
    for name in ("train", "eval"):
        records, position = read_new(
            run_dir / "metrics" / f"{name}.jsonl",
            state["positions"].get(name, 0),
            state["last_steps"].get(name, 0),
        )
        metrics = list(metrics_of(records, timestamp))
        for i in range(0, len(metrics), BATCH):
            client.log_batch(run_id, metrics=metrics[i : i + BATCH])
        state["positions"][name] = position
        state["last_steps"][name] = max([state["last_steps"].get(name, 0)] + [record["step"] for record in records])
    if event["event"] == "daemon exited":
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(event["state"], "KILLED")
        client.set_terminated(run_id, status)
    elif event["event"] == "daemon started":
        client.update_run(run_id, status="RUNNING")
    temporary = state_file.with_suffix(".tmp")
    temporary.write_text(json.dumps(state))
    temporary.replace(state_file)


if __name__ == "__main__":
    main()
