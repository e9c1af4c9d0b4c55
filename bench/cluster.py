"""Asynchronous against synchronous training with parameter servers when one worker is slow: validation loss over time.

  cluster.py BIN [--text FILE] [--lr LR,…] [--target LOSS] [--seconds N] [--only ROW,…]

BIN is the folder of stokerd. One parameter server and three workers train the GPT of group.py on bytes:

  async    each gradient is an update, whatever updates came between
  sync     a step has the gradients of all three workers (three micro-batches)
  backup   a step has the first two gradients; the third worker is a backup (Chen et al., arXiv:1604.00981)

So that a machine with few cores can run them, no worker has a core to itself: each runs for half of each 100 ms, the slow one,
which is the last, for a tenth, and is stopped for the rest (SIGSTOP, SIGCONT). Each row trains with each learning rate for
--seconds after the first step, from which time is counted. stoker-eval then computes the validation loss of its checkpoints,
of which there is one each 5 s. Printed is the learning rate that reaches the target first, or else has the lowest
loss at the end.
"""
import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from group import SETUP, free_port, records

ROWS = {"async": ("async", 1), "sync": ("sync", 3), "backup": ("sync", 2)}  # replicas, gradients per step
NUM_WORKERS = 3
SHARE, SLOW_SHARE, PERIOD = 0.5, 0.1, 0.1  # of the time, of the slow worker, of how many seconds
SAVE_SECONDS = 5
EVALUATED_SAMPLES = 200


def configuration(text, gradients, learning_rate):
    return f"""
data:
  train: {{format: text, path: {text}, split: [0, 0.9], sequence: {{block_size: {SETUP["context"]}}}}}
  val: {{format: text, path: {text}, split: [0.9, 1], sequence: {{block_size: {SETUP["context"]}}}}}
feed: {{num_workers: 1, on_sample_error: fail}}
model: {{name: gpt, num_layers: {SETUP["layers"]}, num_heads: {SETUP["heads"]}, embed_dim: {SETUP["width"]},
        context_length: {SETUP["context"]}, vocab_size: 256, dropout: 0.0}}
task: {{name: language_modeling}}
optimizer: {{name: adamw, lr: {learning_rate}}}
scheduler: {{name: constant, warmup_steps: 100}}
train: {{max_steps: 1000000, micro_batch_size: {SETUP["micro_batch_size"]}, max_grad_norm: 1.0, device: cpu,
         gradient_accumulation_steps: {gradients}, num_threads: 1}}
distributed: {{reduction: ordered}}
checkpoint: {{save_every_steps: null, save_every_seconds: {SAVE_SECONDS}, keep_last: 1000}}
eval: {{datasets: [val], checkpoints: all, max_samples: {EVALUATED_SAMPLES}}}
metrics: {{log_every_steps: 1, tensorboard: false}}
"""


class Throttle(threading.Thread):
    """Lets a process run for a part of each period."""

    def __init__(self, pid, share, phase):
        super().__init__()
        self.pid, self.share, self.phase = pid, share, phase
        self.ended = threading.Event()

    def run(self):
        self.ended.wait(self.phase * PERIOD)
        while not self.ended.is_set():
            os.kill(self.pid, signal.SIGCONT)
            self.ended.wait(self.share * PERIOD)
            os.kill(self.pid, signal.SIGSTOP)
            self.ended.wait((1 - self.share) * PERIOD)
        os.kill(self.pid, signal.SIGCONT)


class Run:
    def __init__(self, args, work, row, learning_rate):
        self.args, self.learning_rate = args, learning_rate
        self.replicas, self.gradients = ROWS[row]
        self.directory = str(Path(work, f"{row}-{learning_rate}"))
        self.config = f"{self.directory}.yaml"
        Path(self.config).write_text(configuration(args.text, self.gradients, learning_rate))

    def program(self, name, *arguments):
        return [str(Path(self.args.bin, name)), "--run-dir", self.directory, *arguments]

    def start(self):
        def addresses(count):
            return ",".join(f"127.0.0.1:{free_port()}" for _ in range(count))

        cluster = ["--ps_hosts", addresses(1), "--worker_hosts", addresses(NUM_WORKERS), "--replicas", self.replicas]
        tasks = [("ps", 0), *(("worker", index) for index in range(NUM_WORKERS))]
        return [subprocess.Popen(self.program("stokerd", "--config", self.config, *cluster, "--job_name", job,
                                              "--task_index", str(index)),
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for job, index in tasks]

    def train(self):
        tasks = self.start()
        throttles = []
        try:
            while not records(self.directory):
                if any(task.poll() is not None for task in tasks):
                    sys.exit(f"a task of {self.directory} has ended; see its logs")
                time.sleep(0.1)
            shares = [SHARE] * (NUM_WORKERS - 1) + [SLOW_SHARE]
            throttles = [Throttle(task.pid, share, index / NUM_WORKERS)
                         for index, (task, share) in enumerate(zip(tasks[1:], shares))]
            for throttle in throttles:
                throttle.start()
            time.sleep(self.args.seconds)
        finally:
            for throttle in throttles:
                throttle.ended.set()
            for throttle in throttles:
                throttle.join()
            status = subprocess.run(self.program("stokerctl", "--json", "status"), capture_output=True, text=True)
            tasks[1].terminate()
            codes = [task.wait() for task in tasks]
        if any(codes):
            sys.exit(f"the tasks of {self.directory} ended with {codes}; see their logs")
        self.cluster = json.loads(status.stdout)["cluster"]

    def evaluate(self):
        subprocess.run(self.program("stoker-eval", "--once"), check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

        def seconds(record):
            return datetime.datetime.fromisoformat(record["wall_time"].replace("Z", "+00:00")).timestamp()

        trained = records(self.directory)
        at = {record["step"]: seconds(record) - seconds(trained[0]) for record in trained}
        lines = Path(self.directory, "metrics", "eval.jsonl").read_text().splitlines()
        evaluated = {record["step"]: record["loss"] for record in map(json.loads, lines)}
        # Not of the end, when no worker is slow.
        self.curve = [(at[step], step, loss) for step, loss in sorted(evaluated.items())
                      if step in at and at[step] <= self.args.seconds]

    def reached(self):
        """Seconds and steps to the target, between two checkpoints, or None."""
        before = None
        for point in self.curve:
            if point[2] <= self.args.target:
                if before is None:
                    return point[:2]
                part = (before[2] - self.args.target) / (before[2] - point[2])
                return tuple(before[i] + part * (point[i] - before[i]) for i in (0, 1))
            before = point
        return None

    def rank(self):
        reached = self.reached()
        return (0, reached[0]) if reached else (1, self.curve[-1][2])

    def loss_at(self, seconds):
        return next((f"{loss:.3f}" for at, _, loss in self.curve if at >= seconds), "-")

    def row(self, name, times):
        reached = self.reached()
        cells = [name, self.learning_rate, *(f"{value:.0f}" for value in reached or ()), *(() if reached else ("-", "-")),
                 f"{self.curve[-1][1] / self.curve[-1][0]:.1f}",
                 self.cluster["stale_gradients"] + self.cluster["backup_gradients"], self.cluster["largest_staleness"],
                 *(self.loss_at(seconds) for seconds in times)]
        return "| " + " | ".join(map(str, cells)) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--text", default="/usr/include/c++")
    parser.add_argument("--lr", default="0.0005,0.001,0.002")
    parser.add_argument("--target", type=float, default=2.5, help="validation loss, in nats per byte")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--only", default=",".join(ROWS))
    args = parser.parse_args()
    rows = args.only.split(",")
    if unknown := set(rows) - set(ROWS):
        parser.error(f"--only: unknown row: {', '.join(unknown)}")
    times = [args.seconds / 4, args.seconds / 2, args.seconds - 2 * SAVE_SECONDS]
    print(f"| | learning rate | seconds to {args.target} | steps to {args.target} | steps per second | gradients dropped "
          "| largest staleness | " + " | ".join(f"loss after {seconds:.0f} s" for seconds in times) + " |")
    print("|---|" + "---|" * (6 + len(times)))
    with tempfile.TemporaryDirectory() as work:
        for name in rows:
            runs = [Run(args, work, name, learning_rate) for learning_rate in args.lr.split(",")]
            for run in runs:
                run.train()
                run.evaluate()
            print(min(runs, key=Run.rank).row(name, times), flush=True)


if __name__ == "__main__":
    main()
