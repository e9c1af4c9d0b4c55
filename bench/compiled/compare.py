"""Exports Python modules (bench/compiled/modules.py) with stoker-export and compares their training steps: stokerd with
the compiled module, PyTorch with torch.compile and without, and stokerd with its own model of the same shape. The rows
alternate. Prints the Markdown table of docs/models.md: medians over the rounds, with the lowest and the highest. Takes
about 40 minutes on 2 cores that do nothing else, with --short 20. Needs scripts/deps.sh --python and
scripts/build.sh release."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SYNTHETIC = "data: {{train: {{format: synthetic, num_samples: 4096, input_shape: %s, num_classes: 10}}}}\n"
TEXT = "data: {{train: {{format: text, path: {}, sequence: {{block_size: %d}}}}}}\ntask: {{name: language_modeling}}\n"
CLASSES = "task: {{name: classification}}\n"
DATA = {
    "resnet18": (SYNTHETIC % "[3, 64, 64]" + CLASSES, 32, "{name: resnet18}"),
    "gpt": (TEXT % 128, 16,
            "{name: gpt, num_layers: 4, embed_dim: 128, num_heads: 4, context_length: 128, dropout: 0.1}"),
    "lstm": (TEXT % 50, 32, "{name: lstm_lm, num_layers: 1, hidden_size: 128, context_length: 50}"),
    "mixer": (SYNTHETIC % "[64, 64]" + CLASSES, 64, None),
}


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{Path(command[0]).name}: {(done.stderr.strip().splitlines() or ['exit code ' + str(done.returncode)])[-1]}")
    return done.stdout


def pytorch(name, mode, args):
    return float(run([sys.executable, HERE / "step_times.py", name, mode, args.steps, args.threads]))


def stokerd(name, model, args):
    data, batch, _ = DATA[name]
    folder = args.folder / f"run-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    corpus = args.folder / "corpus.txt"
    config = args.folder / "run.yaml"
    config.write_text(data.format(corpus) + f"model: {model}\noptimizer: {{name: adamw, lr: 0.0001}}\n"
                      f"train: {{max_steps: {args.steps + 10}, micro_batch_size: {batch}, device: cpu, "
                      f"num_threads: {args.threads}, max_grad_norm: null}}\n"
                      "checkpoint: {save_every_steps: 1000000}\ncontrol: {socket: null}\n"
                      "metrics: {log_every_steps: 1}\n")
    run([args.bin / "stokerd", "--config", config, "--run-dir", folder])
    records = [json.loads(line) for line in (folder / "metrics" / "train.jsonl").read_text().splitlines()][10:]
    return statistics.median(record["step_time_ms"] for record in records)


def export(name, args):
    """The duration of the export in seconds, which an existing package keeps next to it, and its size in MB."""
    path, duration = args.folder / name, args.folder / f"{name}.seconds"
    if not ((path / "manifest.json").exists() and duration.exists()):
        started = time.monotonic()
        run([sys.executable, "-m", "stoker_export", f"modules:{name}", "--output", path, "--overwrite"], cwd=HERE)
        duration.write_text(f"{time.monotonic() - started:.0f}")
    return duration.read_text(), (path / "model.pt2").stat().st_size / 1e6


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(prog="compiled_models.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODULE", help=f"modules to compare (default: {' '.join(DATA)})")
    parser.add_argument("--short", action="store_true", help="3 rounds of 10 steps instead of 5 of 30")
    parser.add_argument("--rounds", type=int, help="rounds of all rows")
    parser.add_argument("--steps", type=int, help="steps of each row per round")
    parser.add_argument("--threads", type=int, default=2, help="threads (default: %(default)s)")
    parser.add_argument("--bin", type=Path, required=True, help="folder of stoker's programs (default: the release build)")
    parser.add_argument("--folder", type=Path, required=True,
                        help="keeps the packages, which are not exported again (default: build/compiled)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in DATA]:
        parser.error(f"unknown module {unknown[0]}; one of: {' '.join(DATA)}")
    args.names = args.names or list(DATA)
    args.rounds = args.rounds or (3 if args.short else 5)
    args.steps = args.steps or (10 if args.short else 30)
    args.bin, args.folder = args.bin.resolve(), args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(HERE.parent.parent / "python")
    os.environ["PYTHONWARNINGS"] = "ignore"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(args.folder / "cache"))
    (args.folder / "corpus.txt").write_text("".join(f"line {i} of a text that repeats itself\n" for i in range(40000)))
    print(f"{processor()}, {args.threads} threads, {time.strftime('%Y-%m-%d')}; milliseconds per step, median of {args.rounds} "
          f"rounds of {args.steps} steps (lowest to highest):\n")
    print("| module | export | package | stokerd, compiled | torch.compile | eager PyTorch | stokerd, own model |")
    print("|---|---|---|---|---|---|---|")
    for name in args.names:
        seconds, size = export(name, args)
        own = DATA[name][2]
        rows = {
            "compiled": lambda: stokerd(name, f"{{name: compiled, path: {args.folder / name / 'manifest.json'}}}", args),
            "torch.compile": lambda: pytorch(name, "compile", args),
            "eager": lambda: pytorch(name, "eager", args),
        }
        if own:
            rows["own"] = lambda: stokerd(name, own, args)
        times = {row: [] for row in rows}
        for _ in range(args.rounds):
            for row, measure in rows.items():
                times[row].append(measure())
        cells = [f"{statistics.median(times[row]):.1f} ({min(times[row]):.1f} to {max(times[row]):.1f})"
                 if row in times else "-" for row in ("compiled", "torch.compile", "eager", "own")]
        print(f"| {name} | {seconds} s | {size:.1f} MB | " + " | ".join(cells) + " |", flush=True)


main()
