"""Runs of several stokerd processes on this machine: time per step, and from the kill of a rank to the next step.

  group.py BIN [--repetitions N] [--steps N] [--kills N] [--text FILE] [--rows N…]

BIN is the folder of stokerd. Trains the GPT of config/cpp-gpt.yaml's size on bytes, one thread per rank. The rows
alternate, and the medians over the repetitions are printed; all of them need an idle machine with a core per rank.
PyTorch, for torchrun and the rows of DistributedDataParallel, is that of the Python that runs this.
"""
import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETUP = {"layers": 4, "width": 128, "heads": 4, "context": 128, "micro_batches": 4, "micro_batch_size": 4}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]


def configuration(text, steps, reduction):
    return f"""
data: {{train: {{format: text, path: {text}, sequence: {{block_size: {SETUP["context"]}}}}}}}
feed: {{num_workers: 1}}
model: {{name: gpt, num_layers: {SETUP["layers"]}, num_heads: {SETUP["heads"]}, embed_dim: {SETUP["width"]},
        context_length: {SETUP["context"]}, vocab_size: 256, dropout: 0.0}}
task: {{name: language_modeling}}
train: {{max_steps: {steps}, micro_batch_size: {SETUP["micro_batch_size"]}, max_grad_norm: 1.0, device: cpu,
         gradient_accumulation_steps: {SETUP["micro_batches"]}, num_threads: 1}}
distributed: {{reduction: {reduction}}}
checkpoint: {{save_every_steps: 50, keep_last: 2}}
metrics: {{log_every_steps: 1, tensorboard: false}}
control: {{socket: null}}
"""


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def records(run):
    path = Path(run, "metrics", "train.jsonl")
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Bench:
    def __init__(self, args, work):
        self.args, self.work, self.runs = args, work, 0

    def command(self, steps, reduction):
        self.runs += 1
        config = Path(self.work, f"config-{self.runs}.yaml")
        config.write_text(configuration(self.args.text, steps, reduction))
        run = str(Path(self.work, f"run-{self.runs}"))
        return run, [str(Path(self.args.bin, "stokerd")), "--config", str(config), "--run-dir", run]

    def step_ms(self, reduction, world):
        """The median time of a step; world 0: without the variables of a launcher."""
        run, command = self.command(self.args.steps, reduction)
        port, ranks = free_port(), []
        for rank in range(max(1, world)):
            variables = {} if world == 0 else {
                "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL))
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            sys.exit(f"stokerd ended with {codes}; see {run}/logs/stokerd.log")
        times = [record["step_time_ms"] for record in records(run)]
        return statistics.median(times[len(times) // 4:])

    def ddp_step_ms(self, world):
        setup = json.dumps({**SETUP, "steps": self.args.steps})
        script = str(Path(__file__).with_name("group_baseline.py"))
        output = subprocess.run([*TORCHRUN, f"--nproc-per-node={world}", script, setup], check=True,
                                capture_output=True, text=True).stdout
        return float(output.split()[-1])

    def seconds_from_kill_to_step(self):
        """Under torchrun, 2 ranks: until the record of the first step of the restarted ranks is in train.jsonl."""
        run, command = self.command(10**6, "ordered")
        agent = subprocess.Popen([*TORCHRUN, "--nproc-per-node=2", "--max-restarts=1", "--no-python", *command],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while len(records(run)) < 60:
                time.sleep(0.1)
            log = Path(run, "ranks", "1", "logs", "stokerd.log")
            pid = int(log.read_text().split(" pid=")[1].split()[0])
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            chief_log = Path(run, "logs", "stokerd.log")
            while chief_log.read_text().count("training started") < 2:
                time.sleep(0.01)
            resumed = len(records(run))
            while len(records(run)) <= resumed:
                time.sleep(0.01)
            return time.time() - killed
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--text", default="/usr/include/c++")
    parser.add_argument("--rows", type=int, nargs="*", help="only these rows, counted from 0")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(args, work)
        rows = {
            "1 process": lambda: bench.step_ms("ordered", 0),
            "world of 1": lambda: bench.step_ms("ordered", 1),
            "1 process, reduction null": lambda: bench.step_ms("null", 0),
            "2 ranks, ordered": lambda: bench.step_ms("ordered", 2),
            "2 ranks, allreduce": lambda: bench.step_ms("allreduce", 2),
            "PyTorch DDP, 1 rank": lambda: bench.ddp_step_ms(1),
            "PyTorch DDP, 2 ranks": lambda: bench.ddp_step_ms(2),
        }
        if args.rows is not None:
            rows = {name: row for i, (name, row) in enumerate(rows.items()) if i in args.rows}
        times = {name: [] for name in rows}
        for _ in range(args.repetitions):
            for name, measure in rows.items():
                times[name].append(measure())
        for name, row in times.items():
            if row:
                print(f"{name:26} {statistics.median(row):8.2f} ms/step   {min(row):.2f} to {max(row):.2f}")
        kills = [bench.seconds_from_kill_to_step() for _ in range(args.kills)]
        if kills:
            print(f"kill -9 to next step       {statistics.median(kills):8.2f} s         {min(kills):.2f} to {max(kills):.2f}")


if __name__ == "__main__":
    main()
