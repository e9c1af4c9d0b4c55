#!/usr/bin/env python3
"""Records what producers exchange with stokerd, as inputs of the fuzz target `producer`.

    tests/fuzz/record_producers.py build/release/bin

Runs stokerd and docs/examples/stream_producer.py, with a proxy between them that records first lines, stops stokerd several
times, and takes what it has saved of its producers. Replaces the recorded inputs of tests/fuzz/corpus/producer.tar.gz; those
that libFuzzer has found (scripts/fuzz.sh --merge) remain.
"""
import gzip
import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs/examples/stream_producer.py"
ARCHIVE = ROOT / "tests/fuzz/corpus/producer.tar.gz"
RECORDED = "recorded-"
MAX_INPUT = 4096  # as of the target
TIMEOUT = 60
CONFIG = """
run: {seed: 1}
data:
  train:
    format: jsonl
    fields: {input: x, label: y}
    num_classes: 4
    stream: {source: external, save_elements_mib: 1}
model: {name: mlp, hidden_sizes: [4]}
task: {name: classification}
metrics: {log_every_steps: 1}
train: {max_steps: 10, micro_batch_size: 16, device: cpu, num_threads: 1}
"""


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("record_producers.py: timed out")
        time.sleep(0.02)


def can_connect(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


class Proxy:
    """Listens in a folder in place of the run's socket, and records the first line of each connection."""

    def __init__(self, folder, target):
        self.lines = []
        self.target = str(target)
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(folder / "producers.sock"))
        self.listening.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            producer, _ = self.listening.accept()
            threading.Thread(target=self.forward, args=(producer,), daemon=True).start()

    def forward(self, producer):
        with producer, socket.socket(socket.AF_UNIX) as stokerd:
            if stokerd.connect_ex(self.target) != 0:
                return
            back = threading.Thread(target=self.copy, args=(stokerd, producer), daemon=True)
            back.start()
            first = b""
            while not first.endswith(b"\n") and (byte := producer.recv(1)):
                first += byte
            self.lines.append(first)
            stokerd.sendall(first)
            self.copy(producer, stokerd)
            back.join()

    @staticmethod
    def copy(source, target):
        try:
            while part := source.recv(1 << 16):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


class Run:
    def __init__(self, binaries, folder):
        self.binaries = binaries
        self.run_dir = folder / "run"
        self.proxy_dir = folder / "proxy"
        self.proxy_dir.mkdir()
        self.config = folder / "config.yaml"
        self.config.write_text(CONFIG)
        self.socket = self.run_dir / "producers.sock"
        self.proxy = Proxy(self.proxy_dir, self.socket)
        self.process = None

    def start(self):
        command = [self.binaries / "stokerd", "--config", self.config, "--run-dir", self.run_dir]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.process.poll() is None and can_connect(self.socket))

    def has_step(self):
        records = self.run_dir / "metrics/train.jsonl"
        return records.exists() and records.read_bytes().endswith(b"\n")

    def stop(self):
        """Returns what stokerd has saved of its producers."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(TIMEOUT)
        content = (self.run_dir / "stream_history").read_bytes()
        return content[content.index(b"\n") + 1:]

    def produce(self, *arguments):
        subprocess.run([sys.executable, EXAMPLE, self.proxy_dir, *arguments], check=True, timeout=TIMEOUT)

    def send_raw(self, hello, text):
        """A producer that ends in the middle of a record."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.proxy_dir / "producers.sock"))
            connection.sendall(json.dumps(hello).encode() + b"\n")
            connection.recv(4096)
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)


def record(binaries, folder):
    run = Run(binaries, folder)
    histories = []
    lines = folder / "lines.jsonl"
    lines.write_bytes(b'{"x": 1.5, "y": 1, "priority": 3}\n{"x": 2, "y": 0, "priority": -1}\n')
    run.start()
    run.produce("sim-1", "--generate", "20")
    wait_until(run.has_step)  # of 16 records; a run without one starts over
    histories.append(run.stop())
    run.start()
    run.produce("sim-1", "--generate", "25")  # continues
    run.produce("file.a", str(lines))
    run.send_raw({"format": 1, "name": "broken", "replay": True}, b'{"x": 3, "y": 2, "priority": 0}\n{"x": 4')
    histories.append(run.stop())
    run.start()
    run.send_raw({"format": 1, "name": "live_2", "replay": False}, b'{"x": 5, "y": 3, "priority": 1}\n')
    run.send_raw({"format": 1, "name": "broken"}, b'{"x": 4, "y": 2, "priority": 0}\n')
    run.produce("sim-2", "--generate", "3")
    histories.append(run.stop())
    run.start()
    run.produce("--end")
    run.process.wait(TIMEOUT)
    return [b"h" + line.rstrip(b"\n") for line in run.proxy.lines] + [b"s" + history for history in histories]


def stored_inputs():
    """Those that were not recorded."""
    with tarfile.open(ARCHIVE) as archive:
        return {
            member.name: archive.extractfile(member).read()
            for member in archive
            if not member.name.startswith(RECORDED)
        }


def write_archive(inputs):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)
            member.size = len(inputs[name])
            archive.addfile(member, io.BytesIO(inputs[name]))
    ARCHIVE.write_bytes(gzip.compress(content.getvalue(), 9, mtime=0))


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(folder))
    inputs = stored_inputs()
    for number, content in enumerate(sorted(set(recorded))):
        if len(content) > MAX_INPUT:
            raise SystemExit(f"record_producers.py: an input has {len(content)} bytes, the target reads {MAX_INPUT}")
        inputs[f"{RECORDED}{number:02}"] = content
    write_archive(inputs)
    print(f"{ARCHIVE.relative_to(ROOT)}: {len(inputs)} inputs, {len(set(recorded))} recorded, {ARCHIVE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
