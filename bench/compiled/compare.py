"""Training steps of compiled Python modules in stokerd next to PyTorch eager, torch.compile and stokerd's own model of
the same shape: compare.py BIN FOLDER [--rounds N] [--steps N] [--threads N] [MODULE…]. Exports each module into FOLDER.
The rows alternate; prints a Markdown table of medians, with the lowest and highest round. BIN: stoker's programs."""
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
TEXT = "data: {{train: {{format: text, path: {}, sequence: {{block_size: 128}}}}}}\n"
CLASSES = "task: {{name: classification}}\n"
DATA = {
    "resnet18": (SYNTHETIC % "[3, 64, 64]" + CLASSES, 32, "{name: resnet18}"),
    "gpt": (TEXT + "task: {{name: language_modeling}}\n", 16,
            "{name: gpt, num_layers: 4, embed_dim: 128, num_heads: 4, context_length: 128, dropout: 0.1}"),
    "lstm": (SYNTHETIC % "[50, 64]" + CLASSES, 32, None),
    "mixer": (SYNTHETIC % "[64, 64]" + CLASSES, 64, None),
}


def pytorch(name, mode, args):
    done = subprocess.run([sys.executable, str(HERE / "step_times.py"), name, mode, str(args.steps), str(args.threads)],
                          capture_output=True, text=True, check=True)
    return float(done.stdout)


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
    done = subprocess.run([args.bin / "stokerd", "--config", config, "--run-dir", folder], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"stokerd: {done.stderr.strip().splitlines()[-1]}")
    records = [json.loads(line) for line in (folder / "metrics" / "train.jsonl").read_text().splitlines()][10:]
    return statistics.median(record["step_time_ms"] for record in records)


def export(name, args):
    path = args.folder / name
    started = time.monotonic()
    if (path / "manifest.json").exists():
        return "exists", (path / "model.pt2").stat().st_size / 1e6
    subprocess.run([sys.executable, "-m", "stoker_export", f"modules:{name}", "--output", str(path)], check=True,
                   stdout=subprocess.DEVNULL, cwd=HERE)
    return f"{time.monotonic() - started:.0f} s", (path / "model.pt2").stat().st_size / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(DATA))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_intermixed_args()
    args.bin, args.folder = args.bin.resolve(), args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(HERE.parent.parent / "python")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(args.folder / "cache"))
    (args.folder / "corpus.txt").write_text("".join(f"line {i} of a text that repeats itself\n" for i in range(40000)))
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
        cells = [f"{statistics.median(times[row]):.1f} ms ({min(times[row]):.1f} to {max(times[row]):.1f})"
                 if row in times else "-" for row in ("compiled", "torch.compile", "eager", "own")]
        print(f"| {name} | {seconds} | {size:.1f} MB | " + " | ".join(cells) + " |", flush=True)


main()
