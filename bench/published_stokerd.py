"""The published experiments in stokerd: published_stokerd.py BIN CONFIG RUN_DIR [--steps N] [--threads N] [--device DEVICE].

The times are those of the whole process, with worker process, metrics and checkpoints; the accuracy is that of
stoker-eval. Prints a JSON object (published_experiments.py). BIN is the directory of the programs.
"""
import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path


def read_records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def mean_per_step(records, field):
    """The mean over all steps; the value of a record is the mean over the steps since the previous one."""
    total, previous = 0.0, 0
    for record in records:
        total += record[field] * (record["step"] - previous)
        previous = record["step"]
    return total / previous


def run(command):
    """Ends this program with the last line that a failed command wrote to stderr."""
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        last = result.stderr.strip().rsplit("\n", 1)[-1]
        sys.exit(f"{command[0].name}: exit {result.returncode}: {last}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    parser.add_argument("config")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    shutil.rmtree(args.run_dir, ignore_errors=True)
    command = [args.bin / "stokerd", "--config", args.config]
    settings = [f"run.dir={args.run_dir}", f"train.num_threads={args.threads}", f"train.device={args.device}", "control.socket=null"]
    settings += [f"train.max_steps={args.steps}"] if args.steps else []
    for setting in settings:
        command += ["--set", setting]
    start = time.perf_counter()
    run(command)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    run([args.bin / "stoker-eval", "--run-dir", args.run_dir, "--once"])
    records = read_records(args.run_dir / "metrics" / "train.jsonl")
    evaluated = max(read_records(args.run_dir / "metrics" / "eval.jsonl"), key=lambda record: record["step"])
    result = {
        "row": "stoker, stokerd",
        "steps": records[-1]["step"],
        "seconds": round(seconds, 3),
        "step_ms": round(mean_per_step(records, "step_time_ms"), 4),
        "wait_ms": round(mean_per_step(records, "data_wait_ms"), 4),
        "cores": round((used.ru_utime + used.ru_stime) / seconds, 2),
        "after": round(evaluated["accuracy"], 4),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
