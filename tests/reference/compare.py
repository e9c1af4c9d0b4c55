"""Trains random configurations with stokerd and with the reference trainer, and compares them.

  compare.py BIN [--seed N] [--count N] [--family NAME] [--topology NAME] [--jobs N] [--output DIR] [--state FILE] [--seconds N]
                 [--no-shrink]
  compare.py BIN --unequal-counts  a fixed list: each kind of unequal counts, on two ranks and on two workers with servers
  compare.py BIN --case DIR        a case that --output has kept

BIN is the folder of stokerd, stoker-eval and stokerctl. Case i has the seed N + i. Each failure is shrunk to a small
configuration, printed and kept in DIR. With --state the numbers of finished cases are recorded, and the next call continues.
Exits with 77 without PyTorch, safetensors, torchvision, PyYAML or scikit-learn.

Compared are the loss, rate, gradient norm and metric of each record, all tensors of the checkpoint at the end of each start (weights,
buffers, EMA, optimizer state), evaluation of every checkpoint, best checkpoint, early stopping, and the order of samples.

Bounds. The reference is in double precision, and FLOOR of the largest element is allowed. Where that is not enough, what rounding
does to the run is measured: the reference also trains in single precision, with initial weights that differ in the last bit and rows
of micro-batches in another order. The largest difference of these from double precision, for each number or tensor, is the unit;
FACTOR times that is allowed, too. Gradients that are zero in exact arithmetic, and the steps of adam that divide them by themselves,
have thus the bound of what rounding makes of them. A difference is a failure if it persists with the last of RUNS.
"""
import argparse
import concurrent.futures
import copy
import functools
import itertools
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback

try:
    import sklearn.metrics  # noqa: F401
    import torch
    import torchvision  # noqa: F401
    import yaml
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"the reference trainer: {sys.executable} cannot import {error.name}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import configurations  # noqa: E402
import trainer  # noqa: E402

FACTOR = 16
FLOOR = 4e-6
RUNS = (0, 2, 80)  # in single precision, for one comparison after the other
TIMEOUT_SECONDS = 300


class ProgramError(Exception):
    """A program that did not do what a valid configuration asks for."""


# ---- The programs -----------------------------------------------------------------------------------------------------------


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def write_yaml(path, config):
    path.write_text(yaml.dump(config, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=150))


def call(command, folder, environment=None, expected=(0,)):
    result = subprocess.run(command, cwd=folder, env={**os.environ, "OMP_WAIT_POLICY": "passive", **(environment or {})},
                            capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if result.returncode not in expected:
        lines = (result.stderr + result.stdout).strip().splitlines()
        raise ProgramError(f"{pathlib.Path(command[0]).name} exited with {result.returncode}: " + " | ".join(lines[-3:])[:600])
    return result.stdout


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_cluster(command, folder, cluster):
    """A process for each server and worker. The chief, worker 0, is started when all others wait for it."""
    jobs = [("ps", i) for i in range(cluster["servers"])] + [("worker", i) for i in reversed(range(cluster["workers"]))]
    hosts = {job: f"127.0.0.1:{free_port()}" for job in jobs}
    command = command + ["--replicas", cluster["replicas"], "--placement", cluster["placement"]]
    if cluster["max_staleness"] is not None:
        command += ["--max-staleness", str(cluster["max_staleness"])]
    for job in ("ps", "worker"):
        command += [f"--{job}_hosts", ",".join(hosts[each] for each in sorted(hosts) if each[0] == job)]
    rank_logs = folder / "run/ranks"
    before = count_of("group starting", rank_logs)
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        runs = []
        for job, index in jobs:
            is_chief = (job, index) == ("worker", 0)
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while is_chief and count_of("group starting", rank_logs) < before + len(runs) and time.monotonic() < deadline:
                if any(run.done() for run in runs):
                    break  # it has failed
                time.sleep(0.02)
            # A worker that is late for the end of a short run exits with 73.
            expected = (0, 73) if job == "worker" and not is_chief else (0,)
            runs.append(pool.submit(call, command + ["--job_name", job, "--task_index", str(index)], folder, expected=expected))
        for run in runs:
            run.result()


def count_of(event, folder):
    """Lines with this event in the logs of all tasks but the chief."""
    return sum(path.read_text().count(event) for path in folder.glob("*/logs/stokerd.log"))


def one_process(folder):
    """A copy of the run directory as that of one process, for show-batch: of asynchronous servers a step has no single batch, but with one
    worker it is that of one process."""
    plan = folder / "plan"
    shutil.rmtree(plan, ignore_errors=True)
    shutil.copytree(folder / "run", plan, ignore=shutil.ignore_patterns("*.sock", "LOCK"))
    config = yaml.safe_load((folder / "run/config.yaml").read_text())
    config["cluster"]["replicas"] = None
    write_yaml(plan / "config.yaml", config)
    return "plan"


def start(binaries, folder, config, stage, resumed):
    command = [str(binaries / "stokerd"), "--config", config, "--run-dir", "run"] + stage["flags"]
    if resumed is not None:
        command += ["--resume", f"run/checkpoints/step-{resumed:09}"]
    if stage.get("cluster"):
        start_cluster(command, folder, stage["cluster"])
        return
    ranks = stage["ranks"]
    if ranks == 1:
        call(command, folder)
        return
    port = str(free_port())
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        runs = [pool.submit(call, command, folder, {
            "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for rank in range(ranks)]
        for run in runs:
            run.result()


def pretrained_weights(binaries, folder, config):
    """A file of weights for an adapter: those of the reference's model without one."""
    resolved = yaml.safe_load(call([str(binaries / "stokerd"), "--config", config, "--check-config"], folder))
    resolved["model"]["lora"] = None
    with inside(folder):
        torch.manual_seed(1)
        model = trainer.create_model(resolved, trainer.read_datasets(resolved))
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, folder / "pretrained.safetensors")


class inside:
    """The working directory, to which paths of a configuration are relative. The reference is in one thread."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.before = os.getcwd()
        os.chdir(self.folder)

    def __exit__(self, *_):
        os.chdir(self.before)


def run_programs(binaries, case, folder):
    """Trains all stages and evaluates; returns for each stage its resolved configuration and batches."""
    stages, steps_before = [], 0
    for number, stage in enumerate(case["stages"]):
        config = f"stage{number}.yaml"
        write_yaml(folder / config, stage["config"])
        if number == 0 and stage["config"]["model"].get("lora"):
            pretrained_weights(binaries, folder, config)
        if number == 0 and not stage["config"]["checkpoint"]["save_at_start"]:  # parameter servers cannot
            call([str(binaries / "stokerd"), "--config", config, "--run-dir", "initial", "--set", "checkpoint.save_at_start=true",
                  "--set", "train.max_steps=1", "--set", "scheduler={name: constant, warmup_steps: 0}"], folder)
        resumed = None
        if "resume" in stage:
            steps = checkpoint_steps(folder)
            resumed = steps[int(stage["resume"] * len(steps))]
        start(binaries, folder, config, stage, resumed)
        resolved = yaml.safe_load((folder / "run/config.yaml").read_text())
        steps = resolved["train"]["max_steps"]
        steps_before = steps_before if resumed is None else resumed
        cluster = stage.get("cluster")
        run = one_process(folder) if cluster and cluster["replicas"] == "async" else "run"
        batches = []
        for step in range(steps_before + 1, steps + 1):
            reply = json.loads(call([str(binaries / "stokerctl"), "--run-dir", run, "--json", "show-batch", str(step)], folder))
            batches.append(reply)
        stages.append({"config": resolved, "batches": batches, "ranks": stage["ranks"], "first": steps_before, "last": steps,
                       "is_branch": resumed is not None,
                       "exit": json.loads((folder / "run/exit_status.json").read_text())})
        steps_before = steps
    call([str(binaries / "stoker-eval"), "--run-dir", "run"], folder)
    return stages


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- The reference ------------------------------------------------------------------------------------------------------------


def schedule_of(stage):
    """Micro-batches of each step: lists of (sample, padded length)."""
    schedule = []
    for reply in stage["batches"]:
        tickets = {}
        for row in reply["samples"]:
            tickets.setdefault(row["ticket"], []).append((row["sample"], row.get("padded_to")))
        schedule.append([tickets[ticket] for ticket in sorted(tickets)])
    return schedule


def checkpoint(folder, step):
    run = "initial" if step == 0 and (folder / "initial").exists() else "run"
    return folder / f"{run}/checkpoints/step-{step:09}"


def checkpoint_steps(folder):
    return sorted(int(path.name[5:]) for path in (folder / "run/checkpoints").glob("step-*"))


def load_weights(folder, step, config, kind="model"):
    weights = load_file(checkpoint(folder, step) / f"{kind}.safetensors")
    if config["model"].get("lora"):
        base = load_file(folder / "pretrained.safetensors")
        weights = {**{name: tensor for name, tensor in base.items() if name not in weights}, **weights}
    return weights


def run_reference(stages, datasets, weights, dtype, seed=None):
    """Records of all steps, and the tensors at the end of each stage."""
    perturbation = None if seed is None else torch.Generator().manual_seed(seed)
    run = trainer.Trainer(stages[0]["config"], datasets[0], weights, dtype, perturbation)
    records, tensors = [], []
    kept = {stage["first"] for stage in stages if stage["is_branch"]}
    for stage, data in zip(stages, datasets):
        if stage["is_branch"]:
            run.restore(run.snapshots[stage["first"]])
        records.append(run.train(stage["config"], data, schedule_of(stage), stage["ranks"], kept))
        result = {f"model {name}": tensor for name, tensor in run.weights().items()}
        if run.ema is not None:
            result.update({f"ema {name}": tensor for name, tensor in run.ema_weights().items()})
        for name, state in run.optimizer_state.items():
            result.update({f"optimizer {kind}.{name}": tensor for kind, tensor in state.items()})
        tensors.append({name: tensor.clone() for name, tensor in result.items()})
    return records, tensors


def overflows_single_precision(records):
    """Whether a run in double precision has finite values where single precision has none."""
    values = [record[key] for stage in records for record in stage for key in ("loss", "grad_norm") if record[key] is not None]
    return any(math.isfinite(value) and abs(value) > torch.finfo(torch.float32).max for value in values)


def reported(records, stages):
    """The records of train.jsonl: means over the steps since the previous one."""
    result, steps = {}, {}
    for stage, stage_records in zip(stages, records):
        result = {step: record for step, record in result.items() if step <= stage["first"]}
        steps = {step: record for step, record in steps.items() if step <= stage["first"]}
        steps.update(zip(range(stage["first"] + 1, stage["last"] + 1), stage_records))
        every = stage["config"]["metrics"]["log_every_steps"]
        for step in range(stage["first"] + 1, stage["last"] + 1):
            scheduler = stage["config"]["scheduler"]
            ends_interval = scheduler["name"] == "reduce_on_plateau" and step % scheduler["every_steps"] == 0
            if step % every and step != stage["last"] and not ends_interval:
                continue
            pending = [steps[number] for number in range(max(result, default=0) + 1, step + 1)]
            losses = [record["loss"] for record in pending if record["loss"] is not None]
            counted = [record for record in pending if not record.get("is_nonfinite")]  # samples of weight 0 count
            count = sum(record["metric_count"] for record in counted)
            record = steps[step]
            result[step] = {"loss": sum(losses) / len(losses) if losses else None, "lr": record["lr"], "grad_norm": record["grad_norm"],
                            "metric": record["metric"], "skipped": sum(steps[number]["skipped"] for number in range(1, step + 1)),
                            "value": sum(r["metric_sum"] for r in counted) / count if count else None}
    return result


# ---- Comparison ---------------------------------------------------------------------------------------------------------------


class Bounds:
    """Numbers and tensors of several runs: the first is the expected one, the others show what rounding does."""

    def __init__(self, runs):
        self.runs = runs

    def of(self, get, floor=FLOOR):
        expected = torch.as_tensor(get(self.runs[0]), dtype=torch.float64)
        unit = 0.0
        for run in self.runs[1:]:
            difference = (torch.as_tensor(get(run), dtype=torch.float64) - expected).abs()
            unit = max(unit, difference.max().item() if difference.numel() else 0.0)
        scale = expected.abs().max().item() if expected.numel() else 0.0
        return expected, FACTOR * unit + floor * scale + 1e-12


def difference(actual, expected, bound):
    """None, or how far the tensors differ."""
    actual = torch.as_tensor(actual, dtype=torch.float64)
    if actual.shape != expected.shape:
        return f"has shape {list(actual.shape)}, expected {list(expected.shape)}"
    if actual.numel() == 0:
        return None
    distance = (actual - expected).abs()
    worst = distance.flatten().argmax()
    if torch.isfinite(actual).all() and distance.max().item() <= bound:
        return None
    return (f"is {actual.flatten()[worst].item():.9g}, expected {expected.flatten()[worst].item():.9g}: differs by "
            f"{distance.max().item():.3g}, bound {bound:.3g}")


def compare_records(folder, stages, runs, errors):
    actual = {record["step"]: record for record in read_lines(folder / "run/metrics/train.jsonl")}
    all_records = [reported(records, stages) for records, _ in runs]
    expected = all_records[0]
    if sorted(actual) != sorted(expected):
        errors.append(f"train.jsonl: steps {sorted(actual)}, expected {sorted(expected)}")
        return
    bounds = Bounds(all_records)
    is_bf16 = any(stage["config"]["train"]["precision"] == "bf16" for stage in stages)
    for step in sorted(expected):
        if actual[step].get("skipped_steps", expected[step]["skipped"]) != expected[step]["skipped"]:
            errors.append(f"train.jsonl: step {step}: skipped_steps is {actual[step]['skipped_steps']}, expected {expected[step]['skipped']}")
        fields = [("loss", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm")]
        if expected[step]["metric"] and (expected[step]["metric"] == "mae" or not is_bf16):  # rounding decides what is predicted
            fields.append((expected[step]["metric"], "value"))
        for field, key in fields:
            if expected[step][key] is None:
                if actual[step].get(field) is not None:
                    errors.append(f"train.jsonl: step {step}: {field} is {actual[step][field]}, expected null")
                continue
            if actual[step].get(field) is None:
                errors.append(f"train.jsonl: step {step}: {field} is {actual[step].get(field)}, expected {expected[step][key]}")
                continue
            number, bound = bounds.of(lambda run: run[step][key])
            problem = difference(actual[step][field], number, bound)
            if problem:
                errors.append(f"train.jsonl: step {step}: {field} {problem}")


def compare_progress(folder, stages, datasets, errors):
    """Samples and complete passes over the data of each record."""
    config = stages[0]["config"]
    train, feed, spec = config["train"], config["feed"], config["data"]["train"]
    size = len(datasets[0]["train"].samples) * (spec.get("repeat") or 1)
    if len({(stage["config"]["train"]["micro_batch_size"], stage["config"]["train"]["gradient_accumulation_steps"]) for stage in stages}) > 1:
        return
    micro_batch, tickets = train["micro_batch_size"], train["gradient_accumulation_steps"]
    for record in read_lines(folder / "run/metrics/train.jsonl"):
        done = record["step"] * tickets
        expected = {"samples_seen": done * micro_batch}
        if not feed["bucket_boundaries"]:
            per_epoch = {"drop": size // micro_batch, "pad": -(-size // micro_batch)}.get(feed["last_batch"])
            expected["epoch"] = done // per_epoch if per_epoch else done * micro_batch // size
        for field, value in expected.items():
            if record[field] != value:
                errors.append(f"train.jsonl: step {record['step']}: {field} is {record[field]}, expected {value}")


def optimizer_state(path):
    """The tensors of optimizer.safetensors, or of the files of a sharded optimizer: a range of a tensor is in its metadata."""
    state, parts = {}, {}
    for file in sorted(path.glob("optimizer*.safetensors")):
        with safe_open(file, "pt") as content:
            ranges = json.loads((content.metadata() or {}).get("ranges", "{}"))
            for name in content.keys():
                if name in ranges:
                    parts.setdefault(name, []).append((*ranges[name], content.get_tensor(name)))
                elif name not in state:
                    state[name] = content.get_tensor(name)
    for name, pieces in parts.items():
        whole = torch.full((math.prod(pieces[0][1]),), torch.nan)
        for first, _, piece in pieces:
            whole[first:first + piece.numel()] = piece.flatten()
        state[name] = whole.reshape(pieces[0][1])
    return state


def compare_tensors(folder, stages, runs, errors):
    for number, stage in enumerate(stages):
        if any(later["is_branch"] and later["first"] < stage["last"] for later in stages[number + 1:]):
            continue  # archived
        path = checkpoint(folder, stage["last"])
        actual = {f"model {name}": tensor for name, tensor in load_file(path / "model.safetensors").items()}
        if (path / "ema.safetensors").exists():
            actual.update({f"ema {name}": tensor for name, tensor in load_file(path / "ema.safetensors").items()})
        actual.update({f"optimizer {name}": tensor for name, tensor in optimizer_state(path).items()})
        bounds = Bounds([tensors[number] for _, tensors in runs])
        expected = bounds.runs[0]
        lora = stage["config"]["model"].get("lora")
        for kind in ("model", "ema"):
            names = {name for name in expected if name.startswith(kind + " ")}
            if lora:
                names = {name for name in names if trainer.is_adapter(name.partition(" ")[2], lora)}
            found = {name for name in actual if name.startswith(kind + " ")}
            if names != found:
                errors.append(f"step {stage['last']}: {kind} lacks {sorted(names - found)[:4]}, has in addition {sorted(found - names)[:4]}")
        missing = {name for name in expected if name.startswith("optimizer ")} - set(actual)
        unexpected = [name for name in actual if name.startswith("optimizer ") and name not in expected and actual[name].any()]
        if missing or unexpected:
            errors.append(f"step {stage['last']}: optimizer lacks {sorted(missing)[:4]}, has in addition {sorted(unexpected)[:4]}")
        largest = {}
        for name in expected:
            kind = name.partition(".")[0] if name.startswith("optimizer ") else name
            if expected[name].numel():
                largest[kind] = max(largest.get(kind, 0.0), expected[name].double().abs().max().item())
        for name in sorted(set(actual) & set(expected)):
            number_, bound = bounds.of(lambda run: run[name])
            if name.startswith("optimizer "):
                bound += FLOOR * largest[name.partition(".")[0]]
            problem = difference(actual[name], number_, bound)
            if problem:
                errors.append(f"step {stage['last']}: {name} {problem}")


def compare_evaluations(folder, stages, datasets, errors):
    config, data = stages[-1]["config"], datasets[-1]
    records = {(record["step"], record["dataset"]): record for record in read_lines(folder / "run/metrics/eval.jsonl")}
    steps = checkpoint_steps(folder)
    kind = "ema" if config["eval"]["use_ema"] else "model"
    for step in steps:
        for name in config["eval"]["datasets"]:
            record = records.get((step, name))
            if record is None:
                errors.append(f"eval.jsonl: no record of step {step}, dataset {name}")
                continue
            compare_evaluation(folder, stages, config, data, name, step, kind, record, errors)
    metric = config["eval"]["monitor"]
    values = [(step, records[step, config["eval"]["datasets"][0]].get(metric)) for step in steps
              if (step, config["eval"]["datasets"][0]) in records]
    compare_best(folder, config, metric, values, errors)


def compare_evaluation(folder, stages, config, data, name, step, kind, record, errors):
    weights = load_weights(folder, step, config, kind)
    expected, is_close, extra = trainer.evaluate(config, data, name, weights)
    single = None  # in single precision
    smooth = {"loss", "bits_per_byte", "bits_per_token", "perplexity", "mse", "rmse", "mae", "r2", "calibration_error"}
    for metric, value in expected.items():
        if metric not in record:
            errors.append(f"eval.jsonl: step {step}: no {metric}")
            continue
        actual = record[metric]
        if value is None or actual is None or math.isnan(value):
            if not (actual is None and (value is None or math.isnan(value))):
                errors.append(f"eval.jsonl: step {step}: {metric} is {actual}, expected {value}")
            continue
        if (metric not in smooth or metric == "calibration_error") and metric != "num_samples" and is_close:
            continue
        bound = 1e-6 * max(1.0, abs(value))
        if metric in smooth:
            bound = 1e-5 * max(abs(value), 1e-3)
            if abs(actual - value) > bound:
                single = single or trainer.evaluate(config, data, name, weights, torch.float32)[0]
                bound += FACTOR * abs(single[metric] - value)
        if abs(actual - value) > bound:
            errors.append(f"eval.jsonl: step {step}: {metric} is {actual:.9g}, expected {value:.9g}, bound {bound:.3g}")
    known = set(expected) | {"step", "dataset", "manifest_sha256", "duration_seconds", "wall_time", "num_quarantined"}
    unexpected = sorted(name for name in set(record) - known if not name.endswith(("cpu_cores", "rss_bytes", "bytes_per_second")))
    if unexpected:
        errors.append(f"eval.jsonl: step {step}: unexpected {unexpected}")
    if "confusion_matrix" in extra and not is_close:
        result = json.loads((folder / f"run/eval/step-{step:09}.json").read_text())["datasets"][name]
        if result.get("confusion_matrix") != extra["confusion_matrix"]:
            errors.append(f"eval/step-{step:09}.json: confusion_matrix is {result.get('confusion_matrix')}, expected {extra['confusion_matrix']}")


def compare_best(folder, config, metric, values, errors):
    best = trainer.best_of(values, metric)
    path = folder / "run/eval/best.json"
    actual = json.loads(path.read_text()) if path.exists() else None
    if (best is None) != (actual is None or actual.get("step") is None):
        errors.append(f"eval/best.json: is {actual}, expected {best}")
    elif best is not None and (actual["step"], actual["value"]) != best:
        errors.append(f"eval/best.json: step {actual['step']} with {metric} {actual['value']}, expected step {best[0]} with {best[1]} of {values}")
    stop = trainer.early_stop(values, metric, config["eval"]["early_stopping"])
    path = folder / "run/eval/early_stop.json"
    actual = json.loads(path.read_text())["step"] if path.exists() else None
    if actual != stop:
        errors.append(f"eval/early_stop.json: step {actual}, expected {stop}: {metric} {values}, {config['eval']['early_stopping']}")


def compare_buckets(stages, datasets, errors):
    """A micro-batch has samples of one bucket, padded to its boundary."""
    config = stages[0]["config"]
    boundaries = config["feed"]["bucket_boundaries"] + [config["data"]["train"]["sequence"]["max_length"]]
    for stage in stages:
        for reply in stage["batches"]:
            tickets = {}
            for row in reply["samples"]:
                length = datasets[0]["train"].samples[row["sample"]]["length"]
                tickets.setdefault(row["ticket"], set()).add((next(bound for bound in boundaries if length <= bound), row["padded_to"]))
            for ticket, buckets in tickets.items():
                if len(buckets) > 1 or any(bucket != padded for bucket, padded in buckets):
                    errors.append(f"show-batch: ticket {ticket} has buckets and lengths {sorted(buckets)}")


def compare_order(stages, datasets, errors):
    spec = stages[0]["config"]["data"]["train"]
    feed = stages[0]["config"]["feed"]
    size = len(datasets[0]["train"].samples)
    for stage in stages:
        for reply in stage["batches"]:
            if reply["num_samples"] != size:
                errors.append(f"show-batch: {reply['num_samples']} samples, expected {size}")
                return
    if feed["bucket_boundaries"]:
        compare_buckets(stages, datasets, errors)
        return
    if len({stage["config"]["train"]["micro_batch_size"] for stage in stages}) > 1:
        return
    rows = {}
    for stage in stages:
        for step, reply in enumerate(stage["batches"], stage["first"] + 1):
            if step in rows and rows[step] != reply["samples"]:
                errors.append(f"show-batch: step {step} has other samples after a resume")
            rows[step] = reply["samples"]
    rows = [row for step in sorted(rows) for row in rows[step]]
    if "mixture" in spec:
        sizes = {name: len(datasets[0][name].samples) for name in spec["mixture"]}
        errors += [f"show-batch: {problem}" for problem in trainer.mixture_errors(
            [(row["dataset"], row["dataset_epoch"], row["sample"]) for row in rows], sizes, spec["mixture"])]
    else:
        errors += [f"show-batch: {problem}" for problem in trainer.order_errors(
            [(row["epoch"], row["sample"]) for row in rows], size, feed["shuffle"], feed["last_batch"], spec.get("repeat") or 1)]


def compare(case, folder, stages):
    """Errors of a case whose programs have run."""
    try:
        return compared(folder, stages, case["seed"], has_unequal_counts="kind" in case)
    except Exception:  # a fault of the reference must not end the others
        return ["reference: " + line for line in traceback.format_exc().strip().splitlines()[-3:]]


def compared(folder, stages, seed, has_unequal_counts=False):
    errors = []
    with inside(folder):
        datasets = [trainer.read_datasets(stage["config"]) for stage in stages]
    for stage in stages:
        if (stage["exit"]["state"], stage["exit"]["reason"]) != ("finished", "max_steps reached"):
            errors.append(f"exit_status.json: {stage['exit']}, expected finished, max_steps reached")
    compare_order(stages, datasets, errors)
    if errors:
        return errors
    weights = load_weights(folder, 0, stages[0]["config"])
    is_bf16 = any(stage["config"]["train"]["precision"] == "bf16" for stage in stages)
    runs = [run_reference(stages, datasets, weights, torch.float32 if is_bf16 else torch.float64)]
    if has_unequal_counts and not any(len(set(record["counts"])) > 1 for record in runs[0][0][0]):
        errors.append("case: the micro-batches of each step have equal counts")
        return errors
    if overflows_single_precision(runs[0][0]):
        runs = [run_reference(stages, datasets, weights, torch.float32)]
    for num_runs in RUNS:
        while len(runs) <= num_runs:
            number = len(runs) - 1
            runs.append(run_reference(stages, datasets, weights, torch.float32, None if number == 0 and not is_bf16 else seed + number))
        errors = []
        compare_records(folder, stages, runs, errors)
        compare_progress(folder, stages, datasets, errors)
        compare_tensors(folder, stages, runs, errors)
        if not errors:
            break
    compare_evaluations(folder, stages, datasets, errors)
    return errors


# ---- Shrinking ----------------------------------------------------------------------------------------------------------------

NEEDED = {("data",), ("model", "name"), ("task", "name"), ("run",), ("train", "max_steps"), ("train", "num_threads"), ("train", "device"),
          ("checkpoint",), ("eval", "checkpoints"), ("eval", "priority"), ("eval", "datasets"), ("metrics", "tensorboard"), ("model", "layers"),
          ("optimizer", "name"), ("scheduler", "name"), ("eval", "generate"), ("model", "pretrained")}


def kinds_of(errors):
    """What the errors are about, without their numbers."""
    kinds = set()
    for error in errors:
        program = re.match(r"program: \S+ exited with -?\d+", error)
        kinds.add(program.group() if program else re.sub(r"\d+", "N", error.split(" is ")[0].split(" differs ")[0])[:60])
    return kinds


def smaller_cases(case):
    """Cases with one setting less, fewer steps, or one stage less."""
    stages = case["stages"]
    for number in range(len(stages) - 1, 0, -1):
        yield {**case, "stages": stages[:number] + stages[number + 1:]}
    if any(stage.get("cluster") for stage in stages):
        yield {**case, "stages": [{**stage, "cluster": None} for stage in stages]}
    for ranks in (1, 2):
        if any(stage["ranks"] > ranks for stage in stages):
            yield {**case, "stages": [{**stage, "ranks": min(stage["ranks"], ranks)} for stage in stages]}

    def edited(edit):
        result = copy.deepcopy(case)
        for stage in result["stages"]:
            edit(stage["config"])
        return result

    keys = []
    for stage in stages:
        for section, content in stage["config"].items():
            if section == "run" or section == "data":
                continue
            for key in content:
                if (section,) not in NEEDED and (section, key) not in NEEDED and (section, key) not in keys:
                    keys.append((section, key))
    for section, key in keys:
        yield edited(lambda config: config.get(section, {}).pop(key, None))
    yield edited(lambda config: config.update(scheduler={"name": "constant", "warmup_steps": 0}))
    yield edited(lambda config: config.update(optimizer={"name": "sgd", "lr": 0.1}))
    for steps in (1, 2, 3):
        if len(stages) == 1 and stages[0]["config"]["train"]["max_steps"] > steps:
            yield edited(lambda config: config["train"].update(max_steps=steps))
    for key in ("split", "skip_samples", "max_samples", "repeat", "transforms"):
        if key in stages[0]["config"]["data"]["train"]:
            yield edited(lambda config: config["data"]["train"].pop(key, None))


def shrink(binaries, case, source, errors, seconds=90):
    """The smallest case found that still fails, and its errors."""
    deadline = time.monotonic() + seconds
    kinds = kinds_of(errors)
    progress = True
    while progress and time.monotonic() < deadline:
        progress = False
        for smaller in smaller_cases(case):
            if smaller == case or time.monotonic() > deadline:
                continue
            with tempfile.TemporaryDirectory(prefix="stoker-shrink-") as name:
                folder = pathlib.Path(name)
                copy_data(source, folder)
                found = check(binaries, smaller, folder)
            if kinds & kinds_of(found):
                case, errors, progress = smaller, found, True
                break
    return case, errors


def copy_data(source, folder):
    for path in source.iterdir():
        if path.name in ("run", "initial", "case.json") or path.name.endswith(".yaml"):
            continue
        if path.is_dir():
            shutil.copytree(path, folder / path.name, copy_function=shutil.copy2)
        else:
            shutil.copy2(path, folder / path.name)


def check(binaries, case, folder):
    try:
        return compare(case, folder, run_programs(binaries, case, folder))
    except (ProgramError, subprocess.TimeoutExpired) as error:
        return [f"program: {error}"]


# ---- Main ---------------------------------------------------------------------------------------------------------------------


def prepare(binaries, make_case, seed):
    """Writes the data of a case and runs its programs, in a thread, while the reference computes the case before."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"stoker-reference-{seed}-"))
    case = make_case(seed, folder)
    (folder / "case.json").write_text(json.dumps(case))
    try:
        return case, folder, run_programs(binaries, case, folder), None
    except (ProgramError, subprocess.TimeoutExpired) as error:
        return case, folder, None, f"program: {error}"


def report(binaries, case, folder, errors, output, should_shrink):
    print(f"seed {case['seed']} ({case.get('kind', case['family'])}): {len(errors)} differences")
    for error in errors[:6]:
        print(f"  {error}")
    if should_shrink and len(errors):
        case, errors = shrink(binaries, case, folder, errors)
        print("  smallest case found:")
        for error in errors[:3]:
            print(f"    {error}")
        for stage in case["stages"]:
            print(f"    {json.dumps(stage)}")
    if output:
        target = output / f"seed-{case['seed']}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        copy_data(folder, target)
        (target / "case.json").write_text(json.dumps(case))
        (target / "errors.txt").write_text("\n".join(errors) + "\n")
        print(f"  kept in {target}")
    sys.stdout.flush()


def run_kept_case(binaries, source):
    case = json.loads((source / "case.json").read_text())
    with tempfile.TemporaryDirectory(prefix="stoker-reference-") as name:
        folder = pathlib.Path(name)
        copy_data(source, folder)
        errors = check(binaries, case, folder)
    print("\n".join(errors) or "no differences")
    return 1 if errors else 0


class State:
    """Cases that are done, of a sequence that starts with a seed."""

    def __init__(self, path, seed, count):
        self.path = path
        self.content = {"seed": seed, "done": 0, "failed": []}
        if path and path.exists():
            content = json.loads(path.read_text())
            if content["done"] < count:
                self.content = content

    def record(self, failed_seed=None):
        self.content["done"] += 1
        if failed_seed is not None:
            self.content["failed"].append(failed_seed)
        if self.path:
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.content))
            temporary.replace(self.path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--family", action="append", choices=list(configurations.FAMILIES))
    parser.add_argument("--topology", choices=["ranks", "sync", "async"], help="only on two ranks, or with parameter servers")
    parser.add_argument("--unequal-counts", action="store_true", help="the fixed list instead of random cases")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time, beside the reference")
    parser.add_argument("--output", type=pathlib.Path, help="folder of failed cases")
    parser.add_argument("--state", type=pathlib.Path, help="file with the progress; the next call continues")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time; with --state, the rest is for the next call")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--case", type=pathlib.Path, help="run a case that --output has kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    binaries = arguments.binaries.resolve()
    if arguments.case:
        return run_kept_case(binaries, arguments.case)
    if arguments.unequal_counts:
        arguments.seed, arguments.count = 0, len(configurations.UNEQUAL_CASES)
        make_case = configurations.make_unequal_case
    else:
        make_case = functools.partial(configurations.make_case, families=arguments.family, topology=arguments.topology)
    state = State(arguments.state, arguments.seed, arguments.count)
    began = time.monotonic()
    first = state.content["done"]
    print(f"configurations {first + 1} to {arguments.count} of seed {state.content['seed']}")
    sys.stdout.flush()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        seeds = iter(range(state.content["seed"] + first, state.content["seed"] + arguments.count))
        pending = [pool.submit(prepare, binaries, make_case, seed) for seed in itertools.islice(seeds, arguments.jobs + 1)]
        while pending:
            case, folder, stages, problem = pending.pop(0).result()
            if time.monotonic() - began < arguments.seconds:
                pending += [pool.submit(prepare, binaries, make_case, seed) for seed in itertools.islice(seeds, 1)]
            errors = [problem] if problem else compare(case, folder, stages)
            if errors:
                report(binaries, case, folder, errors, arguments.output, not arguments.no_shrink)
            state.record(case["seed"] if errors else None)
            shutil.rmtree(folder, ignore_errors=True)
    done = state.content["done"] - first
    seconds = time.monotonic() - began
    print(f"{done} configurations in {seconds:.0f} s, {seconds / max(1, done):.2f} s each; {state.content['done']} of {arguments.count} done, "
          f"{len(state.content['failed'])} failed: {state.content['failed']}")
    return 1 if state.content["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
