#!/usr/bin/env python3
"""control_load.py BIN [SECONDS]: how much hostile clients of the control socket cost training.

Trains a small model and alternates periods of SECONDS (default 10) without clients and with all of
these together: 10,000 connections, a sender of one byte a second in each accepted one, subscribers
and requesters that never read. Prints one JSON object: the median step time of both kinds of
periods, their ratio, the growth of stokerd's peak memory, how long `status` takes while it trains,
and the load of the machine before.
Limits: docs/control-protocol.md. Measure on an idle machine.
"""

import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CONFIG = """
data:
  train: {format: synthetic, num_samples: 50000, input_shape: [256], num_classes: 10}
  val: {format: synthetic, num_samples: 256, input_shape: [256], num_classes: 10}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [512, 512]}
task: {name: classification}
train: {max_steps: 100000000, micro_batch_size: 128, device: cpu, num_threads: 1}
checkpoint: {save_every_steps: 100000000}
metrics: {log_every_steps: 10, tensorboard: false}
"""
NUM_CONNECTIONS = 10_000
NUM_STALLED = 8
PAIRS = 3


def memory_kib(pid, field):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise SystemExit(f"no {field} of process {pid}")


def step_times(run, begin, end):
    times = []
    for line in (run / "metrics/train.jsonl").read_text().splitlines():
        record = json.loads(line)
        if begin <= record["wall_time"] <= end:
            times.append(record["step_time_ms"])
    return times


def status_times(path, seconds):
    """Milliseconds that each `status` of one client takes, 100 times a second."""
    times = []
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.perf_counter()
            client.sendall(b"status\n")
            reply = b""
            while not reply.endswith(b"\n"):
                part = client.recv(65536)
                if not part:
                    raise SystemExit("stokerd has closed the connection")
                reply += part
            times.append(1000 * (time.perf_counter() - begin))
            time.sleep(0.01)
    return times


def now():
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03}Z"


class Clients:
    """Hostile clients, all served by this thread."""

    def __init__(self, path):
        self.path = path
        self.open = []
        self.counts = {"rejected": 0, "stalled_dropped": 0}
        self.stalled = [self.connect() for _ in range(NUM_STALLED)]
        for peer in self.stalled:
            self.send(peer, b"subscribe * 1\n")

    def connect(self):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.setblocking(False)
        try:
            peer.connect(str(self.path))
        except BlockingIOError:  # the backlog is full
            peer.close()
            return None
        return peer

    @staticmethod
    def send(peer, data):
        if peer is None:
            return False
        try:
            peer.send(data)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while len(self.open) < NUM_CONNECTIONS:
                peer = self.connect()
                if peer is None:
                    break
                self.open.append(peer)
            for index, peer in enumerate(self.stalled):
                if not self.send(peer, b"help\nhelp\n"):
                    self.counts["stalled_dropped"] += 1
                    if peer is not None:
                        peer.close()
                    self.stalled[index] = self.connect()
            self.send_slowly()
            time.sleep(0.2)

    def send_slowly(self):
        kept = []
        for peer in self.open:
            try:
                data = peer.recv(4096)
                closed = True  # a rejected or dropped connection gets one line
                self.counts["rejected"] += bool(data)
            except BlockingIOError:
                closed = not self.send(peer, b"s")
            except OSError:
                closed = True
            if closed:
                peer.close()
            else:
                kept.append(peer)
        self.open = kept

    def close(self):
        for peer in self.open + [one for one in self.stalled if one is not None]:
            peer.close()
        self.open = []


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    binaries = pathlib.Path(sys.argv[1])
    seconds = float(sys.argv[2]) if len(sys.argv) == 3 else 10
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20_000, limit[1]), limit[1]))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        config = pathlib.Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        with open(pathlib.Path(folder) / "log", "w") as log:
            trainer = subprocess.Popen([binaries / "stokerd", "--config", config, "--run-dir", run],
                                       stdout=log, stderr=log)
        try:
            result = measure(trainer, run, seconds)
        finally:
            trainer.terminate()
            trainer.wait(60)
    result["load_before"] = load
    print(json.dumps(result))


def measure(trainer, run, seconds):
    deadline = time.monotonic() + 60
    while not (run / "metrics/train.jsonl").exists() or not (run / "control.sock").exists():
        if time.monotonic() > deadline or trainer.poll() is not None:
            raise SystemExit("stokerd does not train")
        time.sleep(0.05)
    time.sleep(2)  # the first steps allocate
    before = memory_kib(trainer.pid, "VmHWM")
    quiet, loaded, counts = [], [], {}
    for _ in range(PAIRS):
        begin = now()
        time.sleep(seconds)
        quiet += step_times(run, begin, now())
        clients = Clients(run / "control.sock")
        begin = now()
        clients.run(seconds)
        loaded += step_times(run, begin, now())
        for key, count in clients.counts.items():
            counts[key] = counts.get(key, 0) + count
        clients.close()
    quiet_p50, loaded_p50 = statistics.median(quiet), statistics.median(loaded)
    status = statistics.quantiles(status_times(run / "control.sock", seconds), n=100)
    return {
        "quiet_step_p50_ms": quiet_p50,
        "loaded_step_p50_ms": loaded_p50,
        "ratio": loaded_p50 / quiet_p50,
        "peak_memory_growth_mib": (memory_kib(trainer.pid, "VmHWM") - before) / 1024,
        "status_p50_ms": status[49],
        "status_p99_ms": status[98],
        "records": [len(quiet), len(loaded)],
        **counts,
    }


if __name__ == "__main__":
    main()
