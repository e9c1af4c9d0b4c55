"""Asynchronous against synchronous training with parameter servers when one worker is slow: loss over time.

  cluster.py BIN [--text FILE] [--lr LR,…] [--target LOSS] [--seconds N] [--repetitions N] [--only ROW,…]

BIN is the folder of stokerd. One parameter server and three workers train the GPT of group.py on bytes:

  async    each gradient is an update, whatever updates came between
  sync     a step has the gradients of all three workers (three micro-batches)
  backup   a step has the first two gradients; the third worker is a backup (Chen et al., arXiv:1604.00981)

So that a machine with few cores can run them, no worker has a core to itself: each runs for half of each 100 ms, the slow one,
which is the last, for a tenth, and is stopped for the rest (SIGSTOP, SIGCONT). The machine must be idle otherwise.

Each row trains with each learning rate for --seconds, counted from its first step; the repetitions alternate. With the defaults
this takes about half an hour. The loss is that of the records, which are of all steps: the mean of each 48 micro-batches, linear in
between. It is of samples not seen before as long as the text lasts, so nothing needs to be saved and evaluated meanwhile: a save
delays an asynchronous run, which waits for its slow worker. Printed is the median of the repetitions [smallest, largest]; "-":
not in all of them.
"""
import argparse
import datetime
import json
import math
import signal
import statistics
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
WINDOW = 48  # micro-batches; a multiple of all gradients per step
PATIENCE = 60  # seconds, for the end of a task


def configuration(text, gradients, learning_rate):
    return f"""
data: {{train: {{format: text, path: {text}, sequence: {{block_size: {SETUP["context"]}}}}}}}
feed: {{num_workers: 1, on_sample_error: fail}}
model: {{name: gpt, num_layers: {SETUP["layers"]}, num_heads: {SETUP["heads"]}, embed_dim: {SETUP["width"]},
        context_length: {SETUP["context"]}, vocab_size: 256, dropout: 0.0}}
task: {{name: language_modeling}}
optimizer: {{name: adamw, lr: {learning_rate}}}
scheduler: {{name: constant, warmup_steps: 100}}
train: {{max_steps: 1000000, micro_batch_size: {SETUP["micro_batch_size"]}, max_grad_norm: 1.0, device: cpu,
         gradient_accumulation_steps: {gradients}, num_threads: 1}}
distributed: {{reduction: ordered}}
checkpoint: {{save_every_steps: null, save_every_seconds: null}}
metrics: {{log_every_steps: 1, tensorboard: false}}
"""


class Throttle(threading.Thread):
    """Lets a process run for a part of each period."""

    def __init__(self, task, share, phase):
        super().__init__()
        self.task, self.share, self.phase = task, share, phase
        self.ended = threading.Event()

    def run(self):
        self.ended.wait(self.phase * PERIOD)
        while not self.ended.is_set():
            self.task.send_signal(signal.SIGCONT)  # nothing, once it has ended
            self.ended.wait(self.share * PERIOD)
            self.task.send_signal(signal.SIGSTOP)
            self.ended.wait((1 - self.share) * PERIOD)
        self.task.send_signal(signal.SIGCONT)


class Run:
    def __init__(self, args, directory, row, learning_rate):
        self.args, self.directory = args, str(directory)
        self.replicas, self.gradients = ROWS[row]
        self.config = f"{self.directory}.yaml"
        Path(self.config).write_text(configuration(args.text, self.gradients, learning_rate))

    def program(self, name, *arguments):
        return [str(Path(self.args.bin, name)), "--run-dir", self.directory, *arguments]

    def start(self):
        def addresses(count):
            return ",".join(f"127.0.0.1:{free_port()}" for _ in range(count))

        cluster = ["--ps_hosts", addresses(1), "--worker_hosts", addresses(NUM_WORKERS), "--replicas", self.replicas]
        tasks = [("ps", 0), *(("worker", index) for index in range(NUM_WORKERS))]
        started = []
        for job, index in tasks:
            with open(self.log(len(started)), "w") as log:
                started.append(subprocess.Popen(self.program("stokerd", "--config", self.config, *cluster, "--job_name", job,
                                                             "--task_index", str(index)), stdout=log, stderr=log))
        return started

    def log(self, task):
        return Path(f"{self.directory}-{task}.log")

    def check(self, codes, expected):
        for task, code in enumerate(codes):
            if code != expected:
                sys.exit(f"{self.directory}: task {task} has ended with {code}\n{self.log(task).read_text()[-2000:]}")

    def wait_until(self, tasks, condition):
        while not condition():
            self.check([task.poll() for task in tasks], None)
            time.sleep(0.1)

    def train(self):
        tasks, throttles = self.start(), []
        try:
            self.wait_until(tasks, lambda: records(self.directory))
            shares = [SHARE] * (NUM_WORKERS - 1) + [SLOW_SHARE]
            for index, (task, share) in enumerate(zip(tasks[1:], shares)):
                throttles.append(Throttle(task, share, index / NUM_WORKERS))
                throttles[-1].start()
            end = time.monotonic() + self.args.seconds
            self.wait_until(tasks, lambda: time.monotonic() >= end)
            self.end(throttles)
            status = subprocess.run(self.program("stokerctl", "--json", "status"), capture_output=True, text=True,
                                    check=True, timeout=PATIENCE)
            tasks[1].terminate()  # the chief, which ends the run
            self.check([task.wait(PATIENCE) for task in tasks], 0)
        finally:
            self.end(throttles)
            for task in tasks:
                task.kill()
                task.wait()
        self.cluster = json.loads(status.stdout)["cluster"]
        self.read_curve()

    @staticmethod
    def end(throttles):
        for throttle in throttles:
            throttle.ended.set()
        for throttle in throttles:
            throttle.join()

    def read_curve(self):
        """Of seconds, steps and loss: the first step, then the middle of each window."""
        def seconds(record):
            return datetime.datetime.fromisoformat(record["wall_time"].replace("Z", "+00:00")).timestamp()

        trained = records(self.directory)
        points = [(seconds(record) - seconds(trained[0]), record["step"], record["loss"]) for record in trained]
        points = [point for point in points if point[0] <= self.args.seconds]  # later no worker is slow
        steps = WINDOW // self.gradients
        windows = [points[i:i + steps] for i in range(0, len(points) - steps + 1, steps)]
        self.curve = [points[0], *(tuple(map(statistics.mean, zip(*window))) for window in windows)]
        self.steps_per_second = len(points) / self.args.seconds

    def point_at(self, index, value):
        """The first point of the curve at which seconds, steps or loss (`index`) are `value`; infinite: none."""
        for before, after in zip(self.curve, self.curve[1:]):
            low, high = sorted((before[index], after[index]))
            if low <= value <= high and low < high:
                part = (value - before[index]) / (after[index] - before[index])
                return tuple(first + part * (second - first) for first, second in zip(before, after))
        return (math.inf,) * 3


def cell(values, digits):
    values = sorted(values)
    if values[-1] == math.inf:
        return "-"
    median, smallest, largest = (f"{value:.{digits}f}" for value in (statistics.median(values), values[0], values[-1]))
    return median if len(values) == 1 else f"{median} [{smallest}, {largest}]"


def line(name, learning_rate, runs, target, times):
    reached = [run.point_at(2, target) for run in runs]
    dropped = [run.cluster["stale_gradients"] + run.cluster["backup_gradients"] for run in runs]
    cells = [name, learning_rate, cell([point[0] for point in reached], 0), cell([point[1] for point in reached], 0),
             cell([run.steps_per_second for run in runs], 1), cell(dropped, 0),
             cell([run.cluster["largest_staleness"] for run in runs], 0),
             *(cell([run.point_at(0, seconds)[2] for run in runs], 3) for seconds in times)]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--text", default="/usr/include/c++")
    parser.add_argument("--lr", default="0.0005,0.001,0.002")
    parser.add_argument("--target", type=float, default=2.5, help="loss, in nats per byte")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", default=",".join(ROWS))
    args = parser.parse_args()
    rows, learning_rates = args.only.split(","), args.lr.split(",")
    if unknown := set(rows) - set(ROWS):
        parser.error(f"--only: unknown row: {', '.join(unknown)}")
    times = [args.seconds / 4, args.seconds / 2, args.seconds * 3 / 4]
    runs = {(row, learning_rate): [] for row in rows for learning_rate in learning_rates}
    with tempfile.TemporaryDirectory() as work:
        for number in range(args.repetitions):
            for (row, learning_rate), done in runs.items():
                run = Run(args, Path(work, f"{row}-{learning_rate}-{number}"), row, learning_rate)
                run.train()
                done.append(run)
    print(f"| | learning rate | seconds to {args.target} | steps to {args.target} | steps per second | gradients dropped "
          "| largest staleness | " + " | ".join(f"loss after {seconds:.0f} s" for seconds in times) + " |")
    print("|---|" + "---|" * (6 + len(times)))
    for (row, learning_rate), done in runs.items():
        print(line(row, learning_rate, done, args.target, times))


if __name__ == "__main__":
    main()
