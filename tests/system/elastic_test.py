"""Two agents of torchrun on this host, as two nodes that come and go: ranks are killed at random, and the second agent
leaves and joins again. When both have stopped, the last checkpoint has the bytes of one process that nothing disturbed.

  elastic_test.py BIN [--kills N] [--seed N] [--shard none|optimizer]

BIN is the folder of stokerd and stokerctl. Exits with 77 without PyTorch, or without an address other than that of the loopback
interface, on which nodes do not meet.
"""
import argparse
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 120
CONFIGURATION = """
data:
  train: {format: synthetic, num_samples: 5000, input_shape: [32], num_classes: 4, noise_std: 0.5}
feed: {num_workers: 1}
model: {name: mlp, hidden_sizes: [256, 256], dropout: 0.1}
task: {name: classification}
scheduler: {name: constant}
train: {max_steps: 1000000, micro_batch_size: 64, gradient_accumulation_steps: 4, device: cpu, num_threads: 1}
distributed: {reduction: ordered, shard: SHARD}
checkpoint: {save_every_steps: 10, keep_last: 2}
metrics: {log_every_steps: 1, tensorboard: false}
control: {socket: null}
"""


def own_address():
    """That of the default route; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def reserve_port(address):
    """A bound socket, whose port no other process gets but one that listens with SO_REUSEADDR."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((address, 0))
    return bound


class Test:
    def __init__(self, args, work):
        self.args, self.work = args, Path(work)
        self.random = random.Random(args.seed)
        self.config = self.work / "config.yaml"
        self.config.write_text(CONFIGURATION.replace("SHARD", args.shard))
        self.address = own_address()
        self.reserved = reserve_port(self.address)
        self.port = self.reserved.getsockname()[1]
        self.agents = {}

    def command(self, run):
        return [str(Path(self.args.bin, "stokerd")), "--config", str(self.config), "--run-dir", str(self.work / run)]

    def start_agent(self, node):
        log = open(self.work / f"agent-{node}.log", "a")
        # The agents of PyTorch 2.11 keep the address of their first store, so that they disagree about it when rank 0
        # moves to another node.
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.agents[node] = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--rdzv-backend=c10d",
             f"--rdzv-endpoint={self.address}:{self.port}", "--rdzv-id=elastic", "--max-restarts=1000",
             # Agents compare the endpoint with the name of the host, which can be another address.
             f"--rdzv-conf=is_host={1 - node},last_call_timeout=1",
             "--monitor-interval=0.2", f"--local-addr={self.address}", "--no-python", *self.command("run")],
            stdout=log, stderr=log, env=environment)

    def fail(self, why):
        for path in sorted(self.work.glob("*.log")) + sorted(self.work.glob("run/logs/*.log")):
            print(f"---- {path.name}", *path.read_text().splitlines()[-15:], sep="\n", file=sys.stderr)
        sys.exit(f"elastic_test (seed {self.args.seed}): {why}")

    def wait(self, what, is_done):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                self.fail(f"{what}: not in time")
            if not any(agent.poll() is None for agent in self.agents.values()) and not is_done():
                self.fail(f"{what}: all agents have ended")
            time.sleep(0.1)

    def newest_step(self):
        checkpoints = [path.name for path in self.work.glob("run/checkpoints/step-*")]
        return max((int(name.split("-")[1]) for name in checkpoints), default=0)

    def wait_for_progress(self):
        before = self.newest_step()
        self.wait("progress", lambda: self.newest_step() >= before + 20)

    def log(self):
        path = self.work / "run/logs/stokerd.log"
        return path.read_text() if path.exists() else ""

    def world_sizes(self):
        """Of the starts so far; a process that trains alone has no group."""
        sizes = []
        for line in self.log().splitlines():
            if "daemon started" in line:
                sizes.append(1)
            if "group starting" in line and sizes:
                sizes[-1] = int(line.split("world_size=")[1].split()[0])
        return sizes

    def exported(self, run, step):
        """Model, optimizer and trainer state in one file."""
        path = self.work / f"{run}.safetensors"
        subprocess.run([str(Path(self.args.bin, "stokerctl")), "--run-dir", str(self.work / run), "export", str(step),
                        "--include", "all", "--output", str(path)], check=True, stdout=subprocess.DEVNULL)
        return path

    def ranks(self):
        """Pids of the stokerd processes below the agents."""
        pids = []
        for agent in self.agents.values():
            children = subprocess.run(["ps", "--ppid", str(agent.pid), "-o", "pid=,comm="], capture_output=True,
                                      text=True).stdout
            pids += [int(line.split()[0]) for line in children.splitlines() if line.split()[1] == "stokerd"]
        return pids

    def preempt(self):
        """All ranks save and exit themselves: after 30 s the agents would kill them."""
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            agent.wait()
        status = json.loads((self.work / "run/exit_status.json").read_text())
        if (status["state"], status["step"]) != ("preempted", self.newest_step()):
            self.fail(f"not preempted after a checkpoint: {status}")
        for log in ("run/logs/stokerd.log", "run/ranks/1/logs/stokerd.log"):
            last = (self.work / log).read_text().splitlines()[-1]
            if "daemon exited" not in last or "state=preempted" not in last:
                self.fail(f"a rank has not exited itself; {log} ends with: {last}")
        for log in self.work.glob("agent-*.log"):
            if "forcefully exiting" in log.read_text():
                self.fail(f"an agent has killed a rank: {log.name}")

    def run(self):
        self.start_agent(0)
        self.start_agent(1)
        self.wait_for_progress()
        for _ in range(self.args.kills):
            ranks = self.ranks()
            if ranks:
                os.kill(self.random.choice(ranks), signal.SIGKILL)
            time.sleep(self.random.uniform(0, 1))  # the next kill can meet the start
            self.wait_for_progress()
        self.agents.pop(1).terminate()  # the node leaves
        self.wait("training on one node", lambda: self.world_sizes()[-1] == 1)
        self.wait_for_progress()
        self.start_agent(1)
        self.wait("training on two nodes", lambda: self.world_sizes()[-1] == 2)
        self.wait_for_progress()
        self.preempt()
        starts, steps = len(self.world_sizes()), self.newest_step()
        subprocess.run([*self.command("alone"), "--set", f"train.max_steps={steps}"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        run, alone = (self.exported(each, steps) for each in ("run", "alone"))
        if run.read_bytes() != alone.read_bytes():
            self.fail(f"the state differs after {starts} starts")
        left = [path.name for path in self.work.glob("run/checkpoints/.tmp-step-*")]
        if left:
            self.fail(f"unfinished checkpoints are left: {left}")
        print(f"elastic_test: the same bytes after {starts} starts with {self.world_sizes()} ranks")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--shard", choices=["none", "optimizer"], default="none")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("STOKER_TEST_SEED", "1")))
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("SKIP: no PyTorch")
        sys.exit(77)
    if own_address().startswith("127."):
        print("SKIP: only the loopback interface")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        test = Test(args, work)
        try:
            test.run()
        finally:
            for agent in test.agents.values():
                if agent.poll() is None:
                    agent.terminate()
                    agent.wait()


if __name__ == "__main__":
    main()
