"""The sizes of the published experiments (docs/published.md), and what their rows have in common.

device_ms is the published time of a step with a queue: 11.5 s for 5,000 steps, 37.25 s for 50. published_experiments.py EXPERIMENT
prints it.
"""
import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "parity"))


@dataclass(frozen=True)
class Experiment:
    steps: int
    batch: int
    shape: tuple  # of a sample
    units: int
    lr: float
    capacity: int  # of the queue
    device_ms: float
    evaluation_batches: int = 1


EXPERIMENTS = {
    "mlp": Experiment(5000, 128, (1024,), 1024, 1e-2, 5, 2.3, evaluation_batches=10),
    "blstm": Experiment(50, 400, (128, 512), 128, 1e-3, 4, 745.0),
}


def parse_arguments(description, modes):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--steps", type=int, help="default: as published")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of a PyTorch row")
    parser.add_argument("--simulated", action="store_true", help="sleep for the published step time instead of a step")
    return parser.parse_args()


class Row:
    """Measures the steps of a row. Create it before initialization; evaluations are not part of the times."""

    def __init__(self, name, args):
        self.name, self.experiment, self.is_simulated = name, EXPERIMENTS[args.experiment], args.simulated
        self.steps = args.steps or self.experiment.steps
        self.excluded = self.excluded_cpu = 0.0
        self.accuracies = {}
        self.start, self.cpu = time.perf_counter(), time.process_time()

    def evaluate(self, when, accuracy):
        if self.is_simulated:
            return
        start, cpu = time.perf_counter(), time.process_time()
        self.accuracies[when] = round(accuracy(), 4)
        self.excluded += time.perf_counter() - start
        self.excluded_cpu += time.process_time() - cpu

    def run(self, next_batch, step, synchronize=lambda: None):
        """step(next_batch()) for each step, and synchronize() at the end.

        A row without next_batch gets its input within step().
        """
        wait, start = 0.0, time.perf_counter()
        for _ in range(self.steps):
            began = time.perf_counter()
            batch = next_batch() if next_batch else None
            wait += time.perf_counter() - began
            if self.is_simulated:
                time.sleep(self.experiment.device_ms / 1e3)
            else:
                step(batch)
        synchronize()
        stepped = time.perf_counter() - start
        seconds = time.perf_counter() - self.start - self.excluded
        cores = (time.process_time() - self.cpu - self.excluded_cpu) / seconds
        self.result = {
            "row": self.name,
            "steps": self.steps,
            "seconds": round(seconds, 3),
            "step_ms": round(1e3 * stepped / self.steps, 4),
            "wait_ms": round(1e3 * wait / self.steps, 4) if next_batch else None,
            "cores": round(cores, 2),
        }

    def print(self):
        print(json.dumps(self.result | self.accuracies))


if __name__ == "__main__":
    print(EXPERIMENTS[sys.argv[1]].device_ms)
