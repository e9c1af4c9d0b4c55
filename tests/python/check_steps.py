"""check_steps.py BIN FOLDER: exports the modules of steps.py, trains and evaluates them with stokerd and stoker-eval, and compares losses, metrics and parameters
with a loop of training in PyTorch. All in one process of Python."""
import json
import math
import os
import pathlib
import re
import runpy
import signal
import socket
import subprocess
import sys
import time

import numpy
import steps
import torch
from safetensors.torch import load_file
from stoker_export import export

BIN, FOLDER = map(pathlib.Path, sys.argv[1:3])
SOURCE = pathlib.Path(__file__).parents[2]
RELATIVE = 1e-5
LR, NUM_STEPS, ROWS = 0.05, 6, 8
SEED = 1
# Losses across samples depend on how these are divided.
WHOLE = ("contrastive",)
MASK = 2**64 - 1


def mix64(value):
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


def seed_of(ticket):
    """Of the generator for a micro-batch: SplitMix64 of run.seed, 0, the ticket and the number of this stream."""
    stream = 0
    for part in (SEED, 0, ticket, 6):
        stream = mix64((stream + (part + 1) * 0x9E3779B97F4A7C15) & MASK)
    return mix64((stream + 0x9E3779B97F4A7C15) & MASK)


def write_data(name, samples, folder):
    """The samples in a format of stoker's; the YAML of its dataset."""
    names = list(samples)
    if name in ("class_weights", "quantile"):  # a table
        answer = names[1]
        with open(folder / "data.csv", "w", encoding="utf-8") as file:
            print("a,b,c,d,e"[:2 * samples["input"].shape[1] - 1] + f",{answer}", file=file)
            for row, value in zip(samples["input"].tolist(), samples[answer].flatten().tolist()):
                print(*row, value, sep=",", file=file)
        return f"{{format: csv, path: {folder}/data.csv, fields: {{{answer}: {answer}}}}}"
    if name == "masked_lm":
        with open(folder / "data.jsonl", "w", encoding="utf-8") as file:
            for tokens, length, labels in zip(*(samples[each].tolist() for each in names)):
                print(json.dumps({"ids": tokens[:length], "masked": labels[:length]}), file=file)
        return (f"{{format: jsonl, path: {folder}/data.jsonl, num_classes: 16, fields: {{input_ids: ids, labels: masked}}, "
                "sequence: {max_length: 10}}")
    if name == "detection":
        with open(folder / "data.jsonl", "w", encoding="utf-8") as file:
            for x, boxes, classes, weight in zip(*(samples[each].tolist() for each in names)):
                objects = sum(each != -100 for each in classes)
                print(json.dumps({"x": x, "objects": {"boxes": boxes[:objects], "classes": classes[:objects]}, "weight": weight}), file=file)
        return (f"{{format: jsonl, path: {folder}/data.jsonl, input_shape: [6], fields: {{input: x, others: weight, lists: ["
                "{name: boxes, field: objects.boxes, shape: [4], max_length: 5}, "
                "{name: classes, field: objects.classes, dtype: int64, max_length: 5, padding_value: -100}]}}")
    arrays = {each: values.numpy() for each, values in samples.items()}
    if name == "segmentation":
        arrays["input"] = (samples["input"] * 255).round().numpy().astype(numpy.uint8)
    numpy.savez(folder / "data.npz", **arrays)
    others = [each for each in names if each not in ("input", "label")]
    fields = ["input: input", *(["label: label"] if "label" in names else []), *([f"others: [{', '.join(others)}]"] if others else [])]
    return f"{{format: numpy, path: {folder}/data.npz, fields: {{{', '.join(fields)}}}}}"


def write_config(name, samples, folder):
    data = write_data(name, samples, folder)
    path = folder / "run.yaml"
    path.write_text(
        f"data: {{train: {data}, val: {data}}}\nmodel: {{name: exported, path: {folder}/module}}\ntask: {{name: custom}}\n"
        f"optimizer: {{name: sgd, lr: {LR}, momentum: 0, weight_decay: 0}}\nscheduler: {{name: constant, warmup_steps: 0}}\nfeed: {{shuffle: none}}\n"
        f"run: {{seed: {SEED}}}\ncheckpoint: {{save_every_steps: 2}}\nmetrics: {{log_every_steps: 1}}\n"
        f"train: {{max_steps: {NUM_STEPS}, micro_batch_size: {ROWS}, max_grad_norm: null, device: cpu, num_threads: 1}}\neval: {{batch_size: 5}}\n")
    return path


def command(program, run, *arguments):
    return [str(BIN / program), *(["--config", str(run.parent / "run.yaml")] if program == "stokerd" else []), "--run-dir", str(run), *arguments]


def settings(**values):
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def execute(arguments, expected=0):
    result = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == expected, f"{' '.join(arguments)}: {result.returncode}\n{result.stderr}{result.stdout}"
    return result.stderr + result.stdout


def run_all(commands, environments=None):
    """At the same time."""
    running = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment)
               for arguments, environment in zip(commands, environments or [{}] * len(commands))]
    for process in running:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, f"{process.args}: {process.returncode}\n{output}"


def records_of(run):
    return [json.loads(line) for line in (run / "metrics/train.jsonl").read_text().splitlines()]


def parameters_of(run):
    return load_file(run / "checkpoints/latest/model.safetensors")


def near(found, expected, what):
    assert abs(found - expected) <= RELATIVE * max(abs(expected), 0.01), f"{what}: {found}, PyTorch {expected}"


def check_run(run, records, module):
    found = records_of(run)
    assert [each["step"] for each in found] == list(range(1, NUM_STEPS + 1))
    for of_run, of_pytorch in zip(found, records):
        for key, value in of_pytorch.items():
            near(of_run[key], value, f"{run}: {key} of step {of_run['step']}")
        # In this order, behind the loss.
        names = list(of_run)
        assert names[names.index("loss"):names.index("lr")] == list(of_pytorch), names
    parameters = parameters_of(run)
    for key, value in module.state_dict().items():
        error = (parameters[key] - value).norm().item()
        assert error <= RELATIVE * max(value.norm().item(), 0.01), f"{run}: {key} differs by {error}"


def check_module(name):
    folder = FOLDER / name
    folder.mkdir()
    module, samples, directions = steps.make(name)
    batch = {key: values[:6] for key, values in samples.items()}
    export(module, None, batch, folder / "module", metrics=directions)
    write_config(name, samples, folder)
    divisions = ((ROWS, 1),) if name in WHOLE else ((8, 1), (4, 2), (1, 8))
    run_all([command("stokerd", folder / f"run{micro}", *settings(train__micro_batch_size=micro, train__gradient_accumulation_steps=accumulate))
             for micro, accumulate in divisions])
    for micro, accumulate in divisions:
        records, trained = steps.trained(module, samples, micro=micro, accumulate=accumulate, steps=NUM_STEPS, lr=LR, seed_of=seed_of)
        check_run(folder / f"run{micro}", records, trained)
    run = folder / "run8"
    execute(command("stoker-eval", run, "--once"))
    _, trained = steps.trained(module, samples, micro=ROWS, accumulate=1, steps=NUM_STEPS, lr=LR, seed_of=seed_of)
    expected = steps.evaluated(trained, samples, 5)
    result = json.loads((run / f"eval/step-{NUM_STEPS:09}.json").read_text())["datasets"]["val"]
    assert list(result)[:len(expected)] == list(expected), result
    for key, value in expected.items():
        near(result[key], value, f"{run}: {key} of the evaluation")
        if name not in WHOLE:
            near(value, steps.evaluated(trained, samples, 32)[key], f"{name}: {key} and the batch size")
    table = {row["name"]: row["direction"] for row in json.loads((run / "metrics/table.json").read_text())["metrics"]}
    declared = {key: value if isinstance(value, str) else value["direction"] for key, value in directions.items()}
    assert table == {key: declared.get(key, "minimize") for key in expected}, table


def check_best():
    """eval.monitor follows the direction that the module declares."""
    run = FOLDER / "class_weights" / "best"
    for last in (2, 4, 6, 8):  # the last step is always saved
        execute(command("stokerd", run, *settings(train__max_steps=last, optimizer__lr=1.5, checkpoint__keep_last=20)))
    for metric, choose in (("accuracy", max), ("error_rate", min)):
        execute(command("stoker-eval", run, "--once", *settings(eval__monitor=metric, eval__checkpoints="all")))
        values = {row["step"]: row[metric] for row in map(json.loads, (run / "metrics/eval.jsonl").read_text().splitlines())}
        assert len(set(values.values())) > 2, values
        best = json.loads((run / "eval/best.json").read_text())
        assert best["metric"] == metric and best["value"] == choose(values.values()), (best, values)
    error = execute(command("stokerd", FOLDER / "class_weights/unknown", *settings(eval__monitor="acuracy")), expected=78)
    assert "'acuracy' is not a metric of this task" in error and "accuracy" in error and error.count("\n") < 4, error


def killed_after_save(arguments, run):
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (run / "checkpoints/latest").exists():
        assert process.poll() is None and time.monotonic() < deadline, "no checkpoint was saved"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def deterministic(run):
    clock = ("samples_per_second", "step_time_ms", "data_wait_ms", "exchange_ms", "checkpoint_stall_ms", "degraded", "wall_time")
    measured = re.compile(r"(worker_|machine_)?(cpu_cores|rss_bytes|.*_bytes_per_second)|device_(busy|allocated_bytes)")
    return [{key: value for key, value in record.items() if key not in clock and not measured.fullmatch(key)} for record in records_of(run)]


def check_resume():
    """With random numbers, and a record that began before the kill."""
    folder = FOLDER / "vae"
    options = settings(metrics__log_every_steps=7, checkpoint__save_every_steps=5)
    run, undisturbed = folder / "killed", folder / "undisturbed"
    killed_after_save(command("stokerd", run, *options, *settings(train__max_steps=100000000)), run)
    last = int((run / "checkpoints/latest").readlink().name.removeprefix("step-")) + 9
    for each in (run, undisturbed):
        execute(command("stokerd", each, *options, *settings(train__max_steps=last)))
    assert deterministic(run) == deterministic(undisturbed)
    for key, value in parameters_of(run).items():
        assert torch.equal(value, parameters_of(undisturbed)[key]), key


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def check_ranks(name):
    """Two ranks have the bytes of one process, and the values of PyTorch."""
    folder = FOLDER / name
    options = settings(distributed__reduction="ordered", train__micro_batch_size=2, train__gradient_accumulation_steps=4, control__socket="null")
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    run_all([command("stokerd", folder / each, *options) for each in ("alone", "ranks", "ranks")],
            [{}, *(group | {"RANK": rank, "LOCAL_RANK": rank} for rank in "01")])
    assert deterministic(folder / "ranks") == deterministic(folder / "alone")
    for key, value in parameters_of(folder / "ranks").items():
        assert torch.equal(value, parameters_of(folder / "alone")[key]), key
    module, samples, _ = steps.make(name)
    check_run(folder / "ranks", *steps.trained(module, samples, micro=2, accumulate=4, steps=NUM_STEPS, lr=LR, seed_of=seed_of))


def check_parameter_servers(name):
    """Two workers and a server: the bytes of one process, which check_ranks() has trained."""
    folder = FOLDER / name
    server, *workers = (f"127.0.0.1:{free_port()}" for _ in range(3))
    options = settings(train__micro_batch_size=2, train__gradient_accumulation_steps=4, control__socket="null", cluster__ps=f"[{server}]",
                       distributed__reduction="ordered", feed__on_sample_error="fail", cluster__worker=f"[{', '.join(workers)}]")
    run_all([command("stokerd", folder / "servers", *options, "--job_name", job, "--task_index", index) for job, index in (("ps", "0"), ("worker", "0"), ("worker", "1"))])
    assert deterministic(folder / "servers") == deterministic(folder / "alone")
    for key, value in parameters_of(folder / "servers").items():
        assert torch.equal(value, parameters_of(folder / "alone")[key]), key


def check_example():
    """Of docs/models.md, with the command line."""
    folder = FOLDER / "example"
    folder.mkdir()
    section = (SOURCE / "docs/models.md").read_text(encoding="utf-8").split("### A step")[1]
    python, yaml = (section.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "yaml"))
    (folder / "flowers.py").write_text("import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n" + python)
    torch.manual_seed(3)
    for name in ("flowers.csv", "more.csv"):
        x = torch.randn(90, 4)
        rows = [f"{','.join(f'{value:.3f}' for value in row.tolist())},{'abc'[int(row[:3].argmax())]},1" for row in x]
        (folder / name).write_text("\n".join(["p,q,r,s,species,confidence", *rows, ""]))
    (folder / "run.yaml").write_text(yaml + "train: {max_steps: 60, micro_batch_size: 8, device: cpu, num_threads: 1}\noptimizer: {name: adam, lr: 0.05}\n")
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE / "python")}

    def run(*arguments, expected=0):
        result = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == expected, f"{arguments}: {result.stderr}{result.stdout}"
        return result.stderr

    export_it = (sys.executable, "-m", "stoker_export", "flowers:make", "--output", "my_model", "--config", "run.yaml")
    (folder / "run.yaml").write_text((folder / "run.yaml").read_text().replace("others: [confidence]", "others: [s]"))
    error = run(*export_it, expected=1)
    assert "flowers.py:" in error and "data.train of run.yaml has input F32 [4], label I64 [], s F32 []: confidence is missing" in error, error
    (folder / "run.yaml").write_text((folder / "run.yaml").read_text().replace("others: [s]", "others: [confidence]"))
    run(*export_it)
    run("stokerd", "--config", "run.yaml", "--run-dir", "run")
    run("stoker-eval", "--run-dir", "run", "--once")
    result = json.loads((folder / "run/eval/step-000000060.json").read_text())["datasets"]["val"]
    assert list(result)[:3] == ["loss", "unweighted", "accuracy"], result
    module = runpy.run_path(str(folder / "flowers.py"))["make"]()[0].eval()
    module.load_state_dict(parameters_of(folder / "run"))
    lines = [line.split(",") for line in (folder / "more.csv").read_text().splitlines()[1:]]
    with torch.no_grad():
        expected = module(torch.tensor([[float(cell) for cell in line[:4]] for line in lines]),
                          torch.tensor(["abc".index(line[4]) for line in lines]), torch.ones(len(lines)))
    near(result["loss"], float(expected["loss"][0] / expected["loss"][1]), "loss")
    near(result["unweighted"], float(expected["losses"]["unweighted"]), "unweighted")
    correct, count = expected["metrics"]["accuracy"]
    # Rounding may decide between two classes with logits of the same size.
    assert abs(result["accuracy"] * count - int(correct)) < 1.5, result
    assert result["unweighted"] < 0.9 < math.log(3), result  # it has learned; chance is log(3)


def check_mismatch():
    error = execute(command("stokerd", FOLDER / "vae/other", *settings(model__path=FOLDER / "multi_task/module")), expected=78)
    assert "its forward() takes input F32 [6], label I64 [], price F32 []; the data has input F32 [12]: " in error, error


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    chosen = sys.argv[3:] or list(steps.STEPS)
    for name in chosen:
        began = time.monotonic()
        check_module(name)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    if sys.argv[3:]:
        return
    for check in (check_best, check_resume, lambda: check_ranks("multi_task"), lambda: check_ranks("masked_lm"), lambda: check_parameter_servers("masked_lm"), check_mismatch, check_example):
        check()
    print(f"{len(chosen)} modules as in PyTorch")


if __name__ == "__main__":
    main()
