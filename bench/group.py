"""Runs of several stokerd processes on this machine: time per step, overlap of sums with the backward pass, cost of
the control record, time from the kill of a rank to the next step, time until the others exit, and checkpoints that all ranks
write.

  group.py BIN [--only PART,…] [--repetitions N] [--steps N] [--kills N] [--pairs N] [--text FILE] [--layers N] [--dir DISK]
           [--rate RATE]

BIN is the folder of stokerd. Parts:

  steps    the GPT of config/cpp-gpt.yaml's size on bytes, one thread per rank, next to PyTorch's DistributedDataParallel
  overlap  a GPT of 25 million parameters, reduction allreduce: sums in buckets during the backward pass, and in one
           bucket after it; the same micro-batches in two processes together, without sums. With --rate the ranks are in two
           network namespaces whose link has that rate, which needs root and iproute2
  record   sums of as many gradients as those of `steps`, with and without the control record, and the record alone;
           needs the target group_test_program
  kills    from kill -9 of a rank under torchrun to the next step, 2 and 4 ranks, next to PyTorch's DistributedDataParallel,
           which loads a checkpoint of torch.save; both save every 50 steps
  losses   not in the default: from SIGKILL or SIGSTOP of a rank, the chief or another one of four, at any time within a step, until
           the other three have exited, without a launcher; --kills of each kind. A minute for each of --kills
  saves    not in the default: a checkpoint of the sharded optimizer of two ranks, in a pause of training: how long training is
           stalled, on rank 0, and the time from then until the checkpoint is committed, which includes the deletion of the
           checkpoint before (that of DCP does not); alternating with the same state, tensor by
           tensor, in torch.distributed.checkpoint.async_save of two ranks over Gloo. A GPT of --layers blocks of 7 million
           parameters; the files are in DISK. PyTorch needs safetensors
  ranks    not in the default: as `steps`, with 8 micro-batches of a step on 1, 2, 4 and 8 ranks, and with 4 on one
  commands not in the default: 2 ranks while a client sends 10 changes of optimizer.lr per second, and without it, in turns of 5 s
  goodput  not in the default: 2 ranks under torchrun of which one is killed at random, on average --mtbf seconds after the
           last kill, --kills times: the part of the time that trains steps which are kept, next to the simulation of
           goodput.py with the same times of failures
  alone    not in the default: what a world of one rank costs a process. Short runs of the GPT with the variables of a
           launcher, and without, in pairs of which every second one is the other way round: the median of the ratios
           of their steps, with its confidence interval of 95 %, which tells what this machine can resolve; and the same
           of pairs of equal processes. About 12 s for each of --pairs

The rows alternate, and the medians over the repetitions are printed; all of them need an idle machine with a core per
rank. PyTorch, for torchrun and the rows of DistributedDataParallel, is that of the Python that runs this.
"""
import argparse
import contextlib
import json
import math
import os
import random
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from goodput import simulate
from slow_link import SlowLink

SAVE_EVERY_STEPS = 50
SETUP = {"layers": 4, "width": 128, "heads": 4, "context": 128, "micro_batches": 4, "micro_batch_size": 4}
# About as long in computation as in sums.
LARGE = {"layers": 8, "width": 512, "heads": 8, "context": 64, "micro_batches": 4, "micro_batch_size": 1}
EIGHT = {**SETUP, "micro_batches": 8}
# As wide as GPT-2. One short step between two saves.
SAVED = {"layers": 12, "width": 768, "heads": 12, "context": 64, "micro_batches": 2, "micro_batch_size": 1}
DEFAULT_PARTS = ("steps", "overlap", "record", "kills")
PARTS = (*DEFAULT_PARTS, "losses", "ranks", "commands", "goodput", "saves", "alone")
LOSS_TIMEOUT_SECONDS = 5  # distributed.timeout_seconds of the part losses
BASELINE = str(Path(__file__).with_name("group_baseline.py"))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]


def configuration(text, steps, reduction, setup, bucket_mib, shard, socket):
    return f"""
data: {{train: {{format: text, path: {text}, sequence: {{block_size: {setup["context"]}}}}}}}
feed: {{num_workers: 1}}
model: {{name: gpt, num_layers: {setup["layers"]}, num_heads: {setup["heads"]}, embed_dim: {setup["width"]},
        context_length: {setup["context"]}, vocab_size: 256, dropout: 0.0}}
task: {{name: language_modeling}}
train: {{max_steps: {steps}, micro_batch_size: {setup["micro_batch_size"]}, max_grad_norm: 1.0, device: cpu,
         gradient_accumulation_steps: {setup["micro_batches"]}, num_threads: 1}}
distributed: {{reduction: {reduction}, bucket_mib: {bucket_mib}, shard: {shard}}}
checkpoint: {{save_every_steps: {SAVE_EVERY_STEPS if setup is SETUP else "null"}, save_every_seconds: null, keep_last: 2}}
metrics: {{log_every_steps: 1, tensorboard: false}}
control: {{socket: {socket}}}
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
    def __init__(self, args, work, maybe_link=None):
        self.args, self.work, self.runs, self.maybe_link = args, work, 0, maybe_link

    def command(self, steps, reduction, setup=SETUP, bucket_mib=25, shard="none", socket="null"):
        self.runs += 1
        config = Path(self.work, f"config-{self.runs}.yaml")
        config.write_text(configuration(self.args.text, steps, reduction, setup, bucket_mib, shard, socket))
        run = str(Path(self.work, f"run-{self.runs}"))
        return run, [str(Path(self.args.bin, "stokerd")), "--config", str(config), "--run-dir", run]

    def start_ranks(self, command, world, **options):
        """World 0: one process without the variables of a launcher. Two ranks are on the hosts of the link, if there is one."""
        port, ranks = free_port(), []
        for rank in range(max(1, world)):
            variables = {} if world == 0 else {
                "RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            if world == 2 and self.maybe_link:
                variables |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": self.maybe_link.address(0),
                              "GLOO_SOCKET_IFNAME": SlowLink.INTERFACE}  # of PyTorch
            on_host = self.maybe_link.on_host(rank) if world == 2 and self.maybe_link else []
            environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, **options}
            ranks.append(subprocess.Popen([*on_host, *command], env=environment, text=True, **streams))
        return ranks

    @staticmethod
    def end(ranks):
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.wait()

    @staticmethod
    def median_ms(run, ranks):
        outputs = [rank.communicate()[0] for rank in ranks]
        codes = [rank.returncode for rank in ranks]
        if any(codes):
            sys.exit(f"{ranks[0].args[0]} ended with {codes}; see {run}/logs/stokerd.log\n{outputs[0]}")
        times = [record["step_time_ms"] for record in records(run)]
        return statistics.median(times[len(times) // 4:])

    def step_ms(self, reduction, world, setup=SETUP):
        """The median time of a step."""
        run, command = self.command(self.args.steps, reduction, setup)
        return self.median_ms(run, self.start_ranks(command, world))

    def undisturbed_step_ms(self, world):
        """The time of a step that nothing else on the machine has slowed down: one of the fastest quarter."""
        run, command = self.command(self.args.steps // 2, "ordered")
        self.median_ms(run, self.start_ranks(command, world))
        times = sorted(record["step_time_ms"] for record in records(run)[5:])
        return times[len(times) // 8]

    def ratios_of_steps(self, first_world, second_world):
        """Step times of the second over those of the first, of --pairs pairs."""
        ratios = []
        for pair in range(self.args.pairs):
            worlds = (first_world, second_world) if pair % 2 == 0 else (second_world, first_world)
            times = [self.undisturbed_step_ms(world) for world in worlds]
            ratios.append(times[1] / times[0] if pair % 2 == 0 else times[0] / times[1])
        return ratios

    def large_step_ms(self, bucket_mib):
        run, command = self.command(self.args.steps // 4, "allreduce", LARGE, bucket_mib)
        return self.median_ms(run, self.start_ranks(command, 2))

    def large_step_without_sums_ms(self):
        """Two processes together, each with the micro-batches of one of two ranks."""
        setup = {**LARGE, "micro_batches": LARGE["micro_batches"] // 2}
        started = [(run, self.start_ranks(command, 0)) for run, command in
                   (self.command(self.args.steps // 4, "null", setup) for _ in range(2))]
        return statistics.mean([self.median_ms(run, ranks) for run, ranks in started])

    def record_us(self):
        """Of two ranks, by what is summed."""
        program = Path(self.args.bin).resolve().parent / "tests" / "group_test_program"
        command = [str(program), "record", "60000", "60000", "bench", "auto"]
        ranks = self.start_ranks(command, 2)
        output = ranks[0].communicate()[0]
        if ranks[1].wait() or ranks[0].returncode:
            sys.exit(f"{program} failed: {output}")
        return {name: float(us) for name, us in
                (line.removeprefix("us ").rsplit(" ", 1) for line in output.splitlines() if line.startswith("us "))}

    @staticmethod
    def ddp_command(world, setup):
        return [*TORCHRUN, f"--nproc-per-node={world}", "--max-restarts=1", BASELINE, json.dumps(setup)]

    def ddp_step_ms(self, world, setup=SETUP, steps=None, **options):
        """With bucket_mib 0 nothing is summed."""
        setup = {**setup, "steps": steps or self.args.steps, **options}
        if not self.maybe_link:
            command = self.ddp_command(world, setup)
            return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
        ranks = self.start_ranks([sys.executable, BASELINE, json.dumps(setup)], world)
        outputs = [rank.communicate()[0] for rank in ranks]
        if any(rank.returncode for rank in ranks):
            sys.exit(f"{BASELINE} failed")
        return float(outputs[0].split()[-1])

    def control(self, run, *command):
        """The reply of stokerctl."""
        reply = subprocess.run([str(Path(self.args.bin, "stokerctl")), "--run-dir", run, "--json", *command],
                               check=True, capture_output=True, text=True).stdout
        return json.loads(reply)

    @staticmethod
    def wait_for_records(run, ranks, count):
        while len(records(run)) < count:
            if any(rank.poll() is not None for rank in ranks):
                sys.exit(f"stokerd has ended; see {run}/logs/stokerd.log")
            time.sleep(0.01)

    def step_and_pause(self, run, ranks):
        before = len(records(run))
        self.control(run, "resume")
        self.wait_for_records(run, ranks, before + 1)
        return self.control(run, "pause")["step"]

    def save(self, run, ranks):
        """Stall and time from its start to the commit in seconds, bytes."""
        step = self.step_and_pause(run, ranks)
        if self.control(run, "checkpoint")["step"] != step:
            sys.exit(f"{run}: the checkpoint of another step was saved")
        status = self.control(run, "status")["checkpoint"]
        folder = Path(run, "checkpoints", f"step-{step:09}")
        size = sum(path.stat().st_size for path in folder.iterdir())
        stall = status["stall_ms"] / 1e3
        return stall, stall + status["commit_ms"] / 1e3, size

    @staticmethod
    def read_lines(ranks):
        """One of each, until a rank ends: the others may wait for it."""
        lines = []
        for rank in ranks:
            while not select.select([rank.stdout], [], [], 0.1)[0]:
                if any(each.poll() is not None for each in ranks):
                    sys.exit(f"{ranks[0].args[1]} failed")
            lines.append(rank.stdout.readline().split())
        return lines

    def save_with_dcp(self, ranks, number):
        folder = Path(self.work, f"dcp-{number}")
        for rank in ranks:
            rank.stdin.write(f"{folder}\n")
            rank.stdin.flush()
        lines = self.read_lines(ranks)
        if len(lines[0]) != 3 or lines[1] != ["saved"]:
            sys.exit("group_save_baseline.py failed")
        return float(lines[0][0]), float(lines[0][1]), int(lines[0][2])

    def saves(self):
        """By kind: (stall in s, time to the commit in s, bytes) of each repetition."""
        setup = {**SAVED, "layers": self.args.layers}
        run, command = self.command(10**6, "ordered", setup, shard="optimizer", socket="auto")
        ranks, baseline = self.start_ranks(command, 2, stdout=subprocess.DEVNULL), []
        try:
            self.wait_for_records(run, ranks, 1)
            self.save(run, ranks)  # allocates the memory of the snapshots
            state = str(Path(run, "checkpoints", "latest").resolve())
            script = str(Path(__file__).with_name("group_save_baseline.py"))
            baseline = self.start_ranks([sys.executable, script, state], 2, stdin=subprocess.PIPE)
            if self.read_lines(baseline) != [["loaded"]] * 2:
                sys.exit(f"{script} failed: it needs PyTorch and safetensors")
            self.save_with_dcp(baseline, 0)
            kinds = {"stokerd, 2 ranks": lambda _: self.save(run, ranks),
                     "DCP async_save, 2 ranks": lambda number: self.save_with_dcp(baseline, number)}
            saves = {kind: [] for kind in kinds}
            for number in range(1, self.args.repetitions + 1):
                for kind, save in kinds.items():
                    saves[kind].append(save(number))
            return saves
        finally:
            self.end(baseline + ranks)

    def start_under_torchrun(self, world, max_restarts):
        run, command = self.command(10**6, "ordered")
        return run, subprocess.Popen(
            [*TORCHRUN, f"--nproc-per-node={world}", f"--max-restarts={max_restarts}", "--no-python", *command],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @staticmethod
    def pid_of_second_rank(run):
        """Of the last start."""
        log = Path(run, "ranks", "1", "logs", "stokerd.log").read_text()
        return int(log.split("daemon started")[-1].split(" pid=")[1].split()[0])

    def kill_and_wait_for_step(self, run):
        """The seconds from the kill of the second rank to the record of the first step of the restarted ranks."""
        chief_log = Path(run, "logs", "stokerd.log")
        starts = chief_log.read_text().count("training started")
        killed = time.monotonic()
        os.kill(self.pid_of_second_rank(run), signal.SIGKILL)
        while chief_log.read_text().count("training started") == starts:
            time.sleep(0.01)
        resumed = len(records(run))  # a resumed run deletes those after its checkpoint
        while len(records(run)) <= resumed:
            time.sleep(0.01)
        return time.monotonic() - killed

    def seconds_from_kill_to_step(self, world):
        """Under torchrun: until the record of the first step of the restarted ranks is in train.jsonl."""
        run, agent = self.start_under_torchrun(world, 1)
        try:
            while len(records(run)) < 60:
                time.sleep(0.1)
            return self.kill_and_wait_for_step(run)
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait()

    def seconds_from_kill_to_step_of_ddp(self, world):
        """Until the first step of the restarted ranks has ended; inf if they hang."""
        self.runs += 1
        folder = Path(self.work, f"ddp-{self.runs}")
        folder.mkdir()
        setup = {**SETUP, "steps": 10**6, "folder": str(folder), "save_every_steps": SAVE_EVERY_STEPS}
        agent = subprocess.Popen(self.ddp_command(world, setup), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps = folder / "steps"
        try:
            while not steps.exists() or steps.read_text().count("step") < 60:
                time.sleep(0.1)
            killed = time.time()
            os.kill(int((folder / "pid-1").read_text()), signal.SIGKILL)
            while "resumed" not in steps.read_text() or not steps.read_text().split("resumed")[1].count("step"):
                if time.time() - killed > 60:
                    return math.inf  # seen with PyTorch 2.11: the restarted ranks hang in init_process_group
                time.sleep(0.01)
            return time.time() - killed
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait()

    def step_ms_with_and_without_commands(self):
        """Medians of turns, by whether a client sends commands."""
        run, command = self.command(10**6, "ordered", socket="auto")
        ranks = self.start_ranks(command, 2, stdout=subprocess.DEVNULL)
        medians = {"without commands": [], "with commands": []}
        try:
            self.wait_for_records(run, ranks, 20)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(Path(run, "control.sock")))
                replies = client.makefile()
                for _ in range(self.args.repetitions):
                    for name, row in medians.items():
                        before, ends = len(records(run)), time.monotonic() + 5
                        while time.monotonic() < ends:
                            if name == "with commands":
                                client.sendall(b"set optimizer.lr 3e-4\nset optimizer.lr 2e-4\n")
                                if any("error" in json.loads(replies.readline()) for _ in range(2)):
                                    sys.exit(f"{run}: a change was rejected")
                            time.sleep(0.2)
                        row.append(statistics.median([record["step_time_ms"] for record in records(run)[before:]]))
            return medians
        finally:
            self.end(ranks)

    def goodput(self):
        """Of a run whose second rank is killed at random; the time to the next step after each kill."""
        generator, restarts = random.Random(1), []
        run, agent = self.start_under_torchrun(2, 10**6)
        try:
            # From a checkpoint on, so that no kill loses steps from before.
            while not any(Path(run, "checkpoints").glob("step-*")):
                time.sleep(0.01)
            first, began = SAVE_EVERY_STEPS, time.monotonic()
            for _ in range(self.args.kills):
                time.sleep(generator.expovariate(1 / self.args.mtbf))
                restarts.append(self.kill_and_wait_for_step(run))
            kept, seconds = records(run)[-1]["step"] - first, time.monotonic() - began
            step_seconds = statistics.median(record["step_time_ms"] for record in records(run)) / 1e3
            return kept * step_seconds / seconds, statistics.mean(restarts), step_seconds
        finally:
            agent.send_signal(signal.SIGTERM)
            agent.wait()

    def seconds_to_exit(self, lost, number):
        """From the signal to rank `lost` until the others have exited."""
        run, command = self.command(10**6, "ordered")
        ranks = self.start_ranks([*command, "--set", f"distributed.timeout_seconds={LOSS_TIMEOUT_SECONDS}"], 4,
                                 stdout=subprocess.DEVNULL)
        try:
            self.wait_for_records(run, ranks, 20)
            time.sleep(random.uniform(0, 0.3))
            signaled = time.monotonic()
            ranks[lost].send_signal(number)
            codes = [rank.wait() for index, rank in enumerate(ranks) if index != lost]
            seconds = time.monotonic() - signaled
            if codes != [73] * 3:
                sys.exit(f"the other ranks have exited with {codes}; see {run}/logs/stokerd.log")
            return seconds
        finally:
            self.end(ranks)


def median_with_interval(values):
    """The median, and the order statistics that contain that of the distribution with 95 %."""
    values = sorted(values)
    count, below, total = len(values), 0, 0.0
    while below < count // 2:
        total += math.comb(count, below) / 2**count
        if total > 0.025:
            break
        below += 1
    low = max(below - 1, 0)
    return statistics.median(values), values[low], values[count - 1 - low]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("--only", default=",".join(DEFAULT_PARTS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--mtbf", type=float, default=20, help="seconds between failures, of the part goodput")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--text", default="/usr/include/c++")
    parser.add_argument("--layers", type=int, default=SAVED["layers"])
    parser.add_argument("--rate", help="of the link between the ranks, of the part overlap: 4gbit; default: none, loopback")
    parser.add_argument("--dir", help="on the disk of the run directories; default: that of temporary files")
    args = parser.parse_args()
    parts = args.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: unknown part: {', '.join(unknown)}")
    if args.rate and parts != ["overlap"]:
        parser.error("--rate: requires --only overlap")
    with (tempfile.TemporaryDirectory(dir=args.dir) as work,
          SlowLink(args.rate) if args.rate else contextlib.nullcontext() as maybe_link):
        bench = Bench(args, work, maybe_link)
        rows = {}
        steps = {
            "1 process": lambda: bench.step_ms("ordered", 0),
            "world of 1": lambda: bench.step_ms("ordered", 1),
            "1 process, reduction null": lambda: bench.step_ms("null", 0),
            "2 ranks, ordered": lambda: bench.step_ms("ordered", 2),
            "2 ranks, allreduce": lambda: bench.step_ms("allreduce", 2),
            "PyTorch DDP, 1 rank": lambda: bench.ddp_step_ms(1),
            "PyTorch DDP, 2 ranks": lambda: bench.ddp_step_ms(2),
        }
        overlap = {
            "2 ranks, in buckets": lambda: bench.large_step_ms(25),
            "2 ranks, in one bucket": lambda: bench.large_step_ms(100_000),
            "2 processes, without sums": bench.large_step_without_sums_ms,
        }
        overlap_of_ddp = {
            f"PyTorch DDP, {name}": lambda mib=mib: bench.ddp_step_ms(2, LARGE, args.steps // 4, bucket_mib=mib)
            for name, mib in (("in buckets", 25), ("in one bucket", 100_000), ("without sums", 0))
        }
        ranks = {"4 micro-batches, 1 process": lambda: bench.step_ms("ordered", 0),
                 "4, PyTorch, 1 rank": lambda: bench.ddp_step_ms(1),
                 "8 micro-batches, 1 process": lambda: bench.step_ms("ordered", 0, EIGHT)}
        for world in (2, 4, 8):
            for reduction in ("ordered", "allreduce"):
                ranks[f"8, {world} ranks, {reduction}"] = (
                    lambda world=world, reduction=reduction: bench.step_ms(reduction, world, EIGHT))
        for world in (1, 2, 4, 8):
            ranks[f"8, PyTorch, {world} rank{'s' * (world > 1)}"] = lambda world=world: bench.ddp_step_ms(world, EIGHT)
        if "steps" in parts:
            rows |= steps
        if "overlap" in parts:
            rows |= overlap | overlap_of_ddp
        if "ranks" in parts:
            rows |= ranks
        times = {name: [] for name in rows}
        for _ in range(args.repetitions):
            for name, measure in rows.items():
                times[name].append(measure())
        for name, row in times.items():
            if row:
                print(f"{name:26} {statistics.median(row):8.2f} ms/step   {min(row):.2f} to {max(row):.2f}")
        if "overlap" in parts:
            for name, names in (("overlap", overlap), ("overlap of PyTorch DDP", overlap_of_ddp)):
                in_buckets, in_one, without = (statistics.median(times[each]) for each in names)
                print(f"{name:26} {100 * (in_one - in_buckets) / (in_one - without):8.0f} % of the sums")
        if "record" in parts:
            costs = [bench.record_us() for _ in range(args.repetitions)]
            for name in costs[0]:
                row = [cost[name] for cost in costs]
                print(f"{name:26} {statistics.median(row):8.1f} us        {min(row):.1f} to {max(row):.1f}")
        if "saves" in parts:
            for kind, saves in bench.saves().items():
                stalls, commits, sizes = zip(*saves)
                rates = [size / seconds / 1e6 for _, seconds, size in saves]
                print(f"{kind:26} {statistics.median(sizes) / 1e6:8.1f} MB")
                for name, unit, row in (("stall", "ms", [1e3 * stall for stall in stalls]),
                                        ("until committed", "ms", [1e3 * commit for commit in commits]),
                                        ("rate", "MB/s", rates)):
                    print(f"  {name:24} {statistics.median(row):8.1f} {unit:10} {min(row):.1f} to {max(row):.1f}")
        if "alone" in parts:
            for name, worlds in (("world of 1 / process", (0, 1)), ("process / process", (0, 0))):
                ratio, low, high = median_with_interval(bench.ratios_of_steps(*worlds))
                print(f"{name:26} {ratio:8.4f}           {low:.4f} to {high:.4f} (95 %)")
        if "losses" in parts:
            losses = {(number, lost): [] for number in (signal.SIGKILL, signal.SIGSTOP) for lost in (0, 1)}
            for _ in range(args.kills):
                for (number, lost), row in losses.items():
                    row.append(bench.seconds_to_exit(lost, number))
            for (number, lost), row in losses.items():
                limit = 2 if number == signal.SIGKILL else LOSS_TIMEOUT_SECONDS + 10
                print(f"{number.name} of {'rank 1' if lost else 'chief ':21} {statistics.median(row):5.2f} s         "
                      f"{min(row):.2f} to {max(row):.2f} (limit: {limit} s)")
        if "commands" in parts:
            for name, row in bench.step_ms_with_and_without_commands().items():
                print(f"{name:26} {statistics.median(row):8.2f} ms/step   {min(row):.2f} to {max(row):.2f}")
        if "goodput" in parts:
            measured, restart, step_seconds = bench.goodput()
            simulated = simulate(args.mtbf, SAVE_EVERY_STEPS * step_seconds, 0, 0, restart, 100_000, 1)
            print(f"goodput                    {100 * measured:8.1f} %         simulated {100 * simulated:.1f} %, "
                  f"{args.kills} kills, restart {restart:.2f} s on average")
        if "kills" in parts:
            kills = {"2 ranks": lambda: bench.seconds_from_kill_to_step(2),
                     "4 ranks": lambda: bench.seconds_from_kill_to_step(4),
                     "PyTorch DDP, 2 ranks": lambda: bench.seconds_from_kill_to_step_of_ddp(2)}
            seconds = {name: [] for name in kills}
            for _ in range(args.kills):
                for name, measure in kills.items():
                    seconds[name].append(measure())
            print("kill -9 to next step")
            for name, row in seconds.items():
                print(f"  {name:24} {statistics.median(row):8.2f} s         {min(row):.2f} to {max(row):.2f}")


if __name__ == "__main__":
    main()
