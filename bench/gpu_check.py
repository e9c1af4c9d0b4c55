"""What scripts/gpu_check.sh runs: checks of a GPU in parts, whose results are kept, so that a later call continues.

Every check appends a line to FOLDER/results.jsonl when it ends, also with what it had measured before it failed. A check
that has passed or failed on this device is not repeated; one that ran out of time or was skipped is. Only one program uses
the device at a time, except that checks which measure nothing run next to torch.compile (class Compilation). FOLDER/log has
the output of all programs, FOLDER/page.md the tables (gpu_page.py).
"""
import argparse
import contextlib
import gzip
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from array import array
from pathlib import Path

sys.dont_write_bytecode = True
import gpu_page  # noqa: E402

ERROR_LENGTH = 300
OUTPUT_LENGTH = 1 << 20  # of a program, in the log
LIMIT = 480  # seconds of a call
KILL_TIMEOUT = 20  # seconds; a process that waits for a driver that hangs does not end


class Skipped(Exception):
    pass


class Failed(Exception):
    pass


class OutOfTime(Exception):
    pass


class Power(threading.Thread):
    """Samples power, memory and use of the device with nvidia-smi."""

    FIELDS = {"power_w": "power.draw", "memory_mib": "memory.used", "busy_percent": "utilization.gpu"}

    def __init__(self, device):
        super().__init__(daemon=True)
        self.samples = []
        index = device.partition(":")[2] or "0"
        command = ["nvidia-smi", f"--id={index}", "--query-gpu=" + ",".join(self.FIELDS.values())]
        try:
            self.process = subprocess.Popen(
                [*command, "--format=csv,noheader,nounits", "-lms", "250"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None

    def run(self):
        if self.process is None:
            return
        for line in self.process.stdout:
            self.samples.append([number_of(value) for value in line.split(",")])

    def stop(self):
        """The maximum of the memory, and the means over the samples in which the device was busy."""
        if self.process is None:
            return {}
        self.process.kill()
        self.process.wait()
        self.join(5)
        samples = list(self.samples)
        if not samples:
            return {}
        busy = [sample for sample in samples if (sample[2] or 0) >= 50] or samples
        columns = {field: [sample[i] for sample in busy if sample[i] is not None] for i, field in enumerate(self.FIELDS)}
        values = {field: round(sum(column) / len(column), 1) for field, column in columns.items() if column}
        if "memory_mib" in values:
            values["memory_mib"] = max(sample[1] for sample in samples if sample[1] is not None)
        return values


def number_of(text):
    try:
        return float(text)
    except ValueError:
        return None  # [N/A]


class Check:
    """The environment of a check: programs, folders, time."""

    def __init__(self, args, log):
        self.args, self.log = args, log
        self.work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
        self.quick = args.quick
        self.environment = {"STOKER_BENCH_DEVICE": args.device} | ({"OMP_NUM_THREADS": "1"} if args.quick else {})
        self.is_cuda = args.device.startswith("cuda")
        self.deadline = 0.0
        self.values = {}  # what a check has measured so far, which is kept if it fails
        self.tests, self.passed_tests = [], []  # of cuda_test
        self.results = {}  # of the checks before, by name

    def remaining(self):
        return max(0.0, self.deadline - time.monotonic())

    def program(self, name):
        for folder in (self.args.bin, self.args.tests, self.args.bench_bin, self.args.tests.parent):
            if (folder / name).exists():
                return folder / name
        raise Failed(f"{name} is missing: build it before packing")

    def start(self, command, env=None, stdin=None):
        text = " ".join(map(str, command))
        self.log.write(f"\n$ {text}\n".encode())
        self.log.flush()
        # To files: a pipe would stay open as long as a child of the program has it.
        output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        process = subprocess.Popen(
            [str(word) for word in command], stdin=stdin, stdout=output, stderr=errors,
            env={**os.environ, **self.environment, **(env or {})}, start_new_session=True, cwd=self.work)
        process.output, process.errors = output, errors
        return process

    @contextlib.contextmanager
    def running(self, command):
        """The process of a program that runs, at most, as long as the block."""
        process = self.start(command)
        try:
            yield process
        finally:
            self.end(process)

    def run(self, command, env=None, accept=(0,), stdin=b""):
        """The standard output. Kills the program when the time of the check is over, and its children in any case."""
        process = self.start(command, env, subprocess.PIPE)
        try:
            process.stdin.write(stdin)
            process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            process.wait(self.remaining())
            is_late = False
        except subprocess.TimeoutExpired:
            is_late = True
        finally:
            out, errors = self.end(process)
        if is_late:
            raise OutOfTime(f"{Path(command[0]).name} did not end in time")
        if process.returncode not in accept:
            raise Failed(f"{Path(command[0]).name}: exit {process.returncode}: {last_line(errors or out)}")
        return out

    def run_tests(self, command, max_silence):
        """Exit code, output and errors of a GoogleTest program, which is killed if it prints nothing for `max_silence` seconds."""
        process = self.start(command)
        try:
            size, printed = 0, time.monotonic()
            while process.poll() is None and self.remaining() > 0 and time.monotonic() - printed < max_silence:
                time.sleep(0.05)
                if (now := os.fstat(process.output.fileno()).st_size) != size:
                    size, printed = now, time.monotonic()
        finally:
            out, errors = self.end(process)
        return process.returncode, out, errors

    def end(self, process):
        """Kills it and its children. What it wrote to standard output and standard error, which the log has, too."""
        self.kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_TIMEOUT)
        out, errors = text_of(process.output), text_of(process.errors)
        for text in (errors, out):
            if len(text) > OUTPUT_LENGTH:
                text = text[: OUTPUT_LENGTH // 2] + "\n[...]\n" + text[-OUTPUT_LENGTH // 2 :]
            self.log.write(text.encode())
        self.log.flush()
        return out, errors

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def python(self, script, *arguments, **options):
        return self.run([sys.executable, self.args.bench / script, *arguments], **options)

    def has_torch(self):
        if self.args.torch is None:
            raise Skipped("this Python has no torch that sees the device")

    def has_fused_kernels(self):
        if "with fused kernels" not in self.run([self.program("stokerd"), "--version"]):
            raise Skipped("built without fused kernels (scripts/deps.sh --nvcc)")
        if not self.is_cuda:
            raise Skipped("needs a GPU")

    def stokerd(self, config, run_dir, settings):
        command = [self.program("stokerd"), "--config", config]
        threads = ["train.num_threads=1"] if self.quick else []  # on a busy machine, several wait for each other
        for setting in [f"run.dir={run_dir}", f"train.device={self.args.device}", *threads, *settings]:
            command += ["--set", setting]
        return command


def text_of(file):
    """Without moving the position at which a program that has the file writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def last_line(text):
    """Without what LibTorch writes after the reason: advice, and where the exception was thrown."""
    after = r"\s*$|frame #|Exception raised from |C\+\+ CapturedTraceback|Search for `cuda|CUDA kernel errors might|For debugging consider|Compile with `TORCH"
    lines = [line for line in text.splitlines() if not re.match(after, line)]
    return lines[-1].strip()[:ERROR_LENGTH] if lines else ""


# ---- start


# For the log: what explains it if no program finds the device.
MACHINE = """
nvidia-smi; cat /proc/driver/nvidia/version; ls -l /dev/nvidia*; ldconfig -p | grep -E 'libcuda|libnvidia-ml'
uname -a; nproc; free -m; df -h / /tmp /dev/shm; ulimit -a; env | grep -E '^(CUDA|LD|NCCL|NVIDIA|PATH|PYTORCH|TORCH)'
"""


def check_libraries(check):
    """Versions, and that every program finds its libraries."""
    check.run(["bash", "-c", MACHINE + "true"])
    missing = []
    programs = ["stokerd", "stoker-eval", "stokerctl", "stoker-feed", "stoker-bench-device", "cuda_test"]
    for path in [check.program(name) for name in programs]:
        missing += missing_libraries(check, path)
    # A program that loads the module has LibTorch, and thereby NVIDIA's libraries, already.
    if check.args.module and check.is_cuda:
        missing += missing_libraries(check, check.args.module, nvidia_folders(check))
    if missing:
        raise Failed("; ".join(sorted(set(missing))))
    if not check.args.module and check.is_cuda:
        raise Failed("libstoker_cuda.so is missing: pack a build with LibTorch's CUDA part (scripts/deps.sh --cuda-link)")
    result = {"version": check.run([check.program("stokerd"), "--version"]).strip(), "glibc": platform.libc_ver()[1]}
    return result | {key: value for key, value in (check.args.torch or {}).items() if key != "folder"}


def missing_libraries(check, path, folders=()):
    folders = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), *map(str, folders)]))
    return re.findall(r"\S+ => not found", check.run(["ldd", path], env={"LD_LIBRARY_PATH": folders}, accept=(0, 1)))


def nvidia_folders(check):
    return sorted(Path(check.args.torch["folder"]).parent.glob("nvidia/*/lib")) if check.args.torch else []


def check_selection(check):
    """stoker-libtorch selects the LibTorch of this Python, which runs a training step with it."""
    if not (check.args.bin / "stoker-libtorch").exists():
        raise Skipped("not an installed tree")
    check.has_torch()
    return {"version": check.run([check.program("stoker-libtorch"), "--python", sys.executable]).strip()}


SMALL = """
data: {train: {format: synthetic, num_samples: 4096, input_shape: [64], num_targets: 1}}
model: {name: mlp, hidden_sizes: [256]}
task: {name: regression}
train: {max_steps: 20, micro_batch_size: 32}
checkpoint: {save_every_steps: 10}
"""


def check_first_steps(check):
    """A short run: that the module loads, which device is used, and how long a start takes."""
    config = check.work / "small.yaml"
    config.write_text(SMALL)
    log_start = check.log.tell()
    begin = time.monotonic()
    check.run(check.stokerd(config, check.work / "small", []))
    seconds = time.monotonic() - begin
    begin = time.monotonic()
    check.run(check.stokerd(config, check.work / "small-again", []))
    return {"first_start_s": round(seconds, 1), "start_s": round(time.monotonic() - begin, 1),
            "graphs": graphs_captured(check, log_start)}


def log_since(check, start):
    check.log.flush()
    with open(check.log.name, "rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


def warnings_since(check, start):
    """Of stokerd: the first of each event, which is what comes before the first field."""
    lines = re.findall(r"^\S+ warning +(.*)$", log_since(check, start), re.M)
    return list({re.sub(r" [\w.]+=.*", "", line): line for line in reversed(lines)}.values())[::-1]


def graphs_captured(check, start):
    text = log_since(check, start)
    reason = re.search(r"cuda graph capture disabled.*", text)
    return reason.group(0)[:ERROR_LENGTH] if reason else text.count("cuda graph captured")


def attention_check(env):
    def run(check):
        extra = dict(env)
        if "LD_LIBRARY_PATH" in extra:
            if check.args.torch is None:
                raise Skipped("no folder of NVIDIA's libraries")
            nvidia = Path(check.args.torch["folder"]).parent / "nvidia" / "cu13" / "lib"
            extra["LD_LIBRARY_PATH"] = ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH"), str(nvidia)]))
        line = bench_line(check, "gpt2", runs=1, env=extra)
        return {"value": line["value"], "unit": line["unit"]}

    return run


# ---- tests

MAX_SILENCE = 90  # seconds without an output of a test


def list_tests(check, name_filter):
    names, suite = [], ""
    for line in check.run([check.program("cuda_test"), "--gtest_list_tests", f"--gtest_filter={name_filter}"]).splitlines():
        if line.startswith("  "):
            names.append(suite + line.split()[0])
        elif line.endswith("."):
            suite = line
    return names


def reason_of(test, out, errors):
    """Why a test failed or was skipped."""
    block = out.partition(f"[ RUN      ] {test}\n")[2]
    block = re.split(r"^\[", block, maxsplit=1, flags=re.M)[0].strip()
    text = re.sub(r"^\S+: (Failure|Skipped)\n", "", block) or last_line(errors)
    return " ".join(text.split())[:ERROR_LENGTH]


def cuda_test(name_filter):
    """All tests in one process. After a failure, which can be the reason of those that follow, a crash, or a test that does
    not end, the tests that have not passed are run in another process: the results of the others do not depend on it. When
    none passes in two processes, all fail by themselves."""

    def run(check):
        tests, passed, skipped, failed = list_tests(check, name_filter), [], {}, {}
        check.tests, check.passed_tests = list(tests), passed
        fruitless = 0
        while tests and check.remaining() > 0:
            code, out, errors = check.run_tests(
                [check.program("cuda_test"), "--gtest_color=no", f"--gtest_filter={':'.join(tests)}"], MAX_SILENCE / check.args.shorten)
            ended = {test: how for how, test in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+) \(\d+ ms\)$", out, re.M)}
            passed += (newly_passed := [test for test in tests if ended.get(test) == "OK"])
            skipped |= {test: reason_of(test, out, errors) for test in tests if ended.get(test) == "SKIPPED"}
            tests = [test for test in tests if test not in passed and test not in skipped]
            if not tests:
                break
            fruitless = 0 if newly_passed else fruitless + 1
            if fruitless == 2 and all(test in ended for test in tests):
                failed |= {test: reason_of(test, out, errors) for test in tests}
                break
            first = tests[0]
            if first in ended:
                failed[first] = reason_of(first, out, errors)
            elif code is not None and check.remaining() > 0:
                how = "did not end" if code == -signal.SIGKILL else f"exit {code}"
                failed[first] = f"{how}: {reason_of(first, out, errors)}"
            else:
                break
            tests.remove(first)
        check.values["passed"] = len(passed)
        if skipped:
            check.values["skipped"] = skipped
        reasons = [f"{test}: {reason}" for test, reason in failed.items()]
        if tests and check.remaining() == 0:
            raise OutOfTime("; ".join([*reasons, f"did not end: {', '.join(tests)}"]))
        if failed:
            raise Failed("; ".join(reasons))
        if not passed:
            raise (Failed if check.is_cuda else Skipped)(f"no test ran: {next(iter(skipped.values()), 'see the log')}")
        return {}

    return run


# Fused kernels, and what the names of the tests that compare them with LibTorch's contain. "gpt2" trains with the first four.
KERNEL_TESTS = {"adamw": "Adamw", "cross_entropy": "CrossEntropy", "gelu": "Gelu", "norm": "Norm|ResidualStream", "rope": "Rope",
                "swiglu": "Swiglu"}
GPT2_KERNELS = ("adamw", "cross_entropy", "gelu", "norm")


def check_kernels(check):
    """The fused kernels compared with LibTorch's. Which of them passed all of their tests."""
    check.has_fused_kernels()
    try:
        return cuda_test("CudaKernelsTest.*")(check)
    finally:
        tests_of = {kernel: {test for test in check.tests if re.search(words, test)} for kernel, words in KERNEL_TESTS.items()}
        check.values["kernels_passed"] = [kernel for kernel, own in tests_of.items() if own and own <= set(check.passed_tests)]


# ---- bit-exact resume


TINY_GPT = """
run: {{deterministic: true}}
data: {{train: {{format: text, path: {text}, sequence: {{block_size: 64}}}}}}
model: {{name: gpt, num_layers: 2, num_heads: 4, embed_dim: {width}, context_length: 64, vocab_size: 256, dropout: 0.1}}
task: {{name: language_modeling}}
scheduler: {{name: {scheduler}}}
train: {{max_steps: {steps}, micro_batch_size: {batch}, precision: bf16, ema_decay: 0.99}}
checkpoint: {{save_every_steps: {steps}}}
metrics: {{log_every_steps: 1}}
"""


def write_tiny_gpt(check, steps, scheduler):
    width, batch = (16, 2) if check.quick else (128, 8)
    text = check.work / "text"
    generator = random.Random(1)
    text.write_bytes(b" ".join(generator.choice([b"alpha", b"beta", b"gamma", b"delta"]) for _ in range(20000)))
    config = check.work / f"gpt-{scheduler}.yaml"
    config.write_text(TINY_GPT.format(text=text, steps=steps, width=width, batch=batch, scheduler=scheduler))
    return config


def wait_for_steps(check, run_dir, process, steps):
    rows = run_dir / "metrics" / "train.jsonl"
    while process.poll() is None and check.remaining() > 0:
        if rows.exists() and rows.read_text().count("\n") >= steps:
            break
        time.sleep(0.01)


def stop_run(check, run_dir, process):
    """The step at which it has stopped."""
    process.terminate()
    try:
        process.wait(max(1, check.remaining()))
    except subprocess.TimeoutExpired:
        raise OutOfTime("stokerd did not stop") from None
    finally:
        check.kill(process)
    if not (run_dir / "exit_status.json").exists():
        raise Failed(f"stokerd: exit {process.returncode}: {last_line(text_of(process.errors))}")
    stopped = json.loads((run_dir / "exit_status.json").read_text())
    if stopped["state"] != "stopped":
        raise Failed(f"the run was not stopped in time: {stopped['state']} at step {stopped['step']}: {last_line(text_of(process.errors))}")
    return stopped["step"]


def compare_runs(whole, run_dir, interrupted_at):
    hashes = [files_of_last_checkpoint(folder) for folder in (whole, run_dir)]
    differing = sorted(name for name in hashes[0] if hashes[0][name] != hashes[1].get(name))
    if differing:
        raise Failed(f"interrupted at step {interrupted_at}: {', '.join(differing)} differ")
    return {"interrupted_at": interrupted_at, "files": sorted(hashes[0])}


def check_resume(check):
    """With run.deterministic, a run that was stopped and resumed saves the same bytes as one that was not."""
    steps = 300 if check.quick and not check.is_cuda else 2000  # takes longer than to stop it
    config = write_tiny_gpt(check, steps, "cosine")
    whole, parts = check.work / "whole", check.work / "parts"
    check.run(check.stokerd(config, whole, []))
    with check.running(check.stokerd(config, parts, [])) as process:
        wait_for_steps(check, parts, process, steps // 10)
        stopped_at = stop_run(check, parts, process)
    check.run(check.stokerd(config, parts, []))
    return compare_runs(whole, parts, stopped_at) | {"steps": steps}


def check_release(check):
    """The same with `pause --release`, which ends and resumes training within the process."""
    steps = 5 if check.quick else 300
    config = write_tiny_gpt(check, 1000000, "constant")
    whole, run_dir = check.work / "whole-constant", check.work / "released"
    with check.running(check.stokerd(config, run_dir, [])) as process:
        wait_for_steps(check, run_dir, process, steps)
        released = pause_and_release(check, run_dir)
        stokerctl(check, run_dir, "resume")
        wait_for_steps(check, run_dir, process, released["step"] + steps)
        stopped_at = stop_run(check, run_dir, process)
    check.run(check.stokerd(config, whole, [f"train.max_steps={stopped_at}"]))
    values = {"steps": stopped_at, "released_mib": released.get("device_reserved_bytes", 0) / 2**20}
    return compare_runs(whole, run_dir, released["step"]) | values


def pause_and_release(check, run_dir):
    """The reply of the command. On the CPU, nothing is released."""
    reply = json.loads(stokerctl(check, run_dir, "pause", "--release"))
    if check.is_cuda and not reply.get("released"):
        raise Failed(f"nothing was released: {reply.get('reason')}")
    return reply


def files_of_last_checkpoint(run_dir):
    folder = max((run_dir / "checkpoints").glob("step-*"))
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return {file["name"]: file["sha256"] for file in files}


# ---- published experiments


def published(experiment, row):
    def run(check):
        if check.quick and experiment == "blstm":
            raise Skipped("takes long on a CPU")
        steps = ["--steps", 8] if check.quick else []
        common = [*steps, "--device", check.args.device]
        if row == "stokerd":
            out = check.python("published_stokerd.py", check.args.bin, check.args.config / f"published-{experiment}.yaml",
                               check.work / f"published-{experiment}", *common)
        else:
            check.has_torch()
            out = check.python("published_pytorch.py", experiment, row, *common)
        result = json.loads(out.strip().splitlines()[-1])
        result["seconds_total"] = result.pop("seconds")
        result.pop("steps")
        return result

    return run


# ---- training steps


def setup_of(check, name):
    quick = ["--quick"] if check.quick else []
    for line in check.run([check.program("stoker-bench-device"), "--list", *quick]).splitlines():
        bench, _, setup = line.partition(" ")
        # The small variant of resnet50 is resnet8.
        if bench == f"device-{name}" or (check.quick and name == "resnet50" and bench.startswith("device-resnet")):
            return json.loads(setup)
    raise Failed(f"stoker-bench-device has no {name}")


def bench_line(check, name, runs=3, env=None):
    quick = ["--quick"] if check.quick else ["--runs", runs, "--seconds", 4]
    bench = "device-" + setup_of(check, name)["model"]
    out = check.run([check.program("stoker-bench-device"), "--only", bench, *quick], env=env)
    return json.loads(out.strip().splitlines()[-1])


def with_power(check, measure):
    power = Power(check.args.device)
    power.start()
    try:
        result = measure()
    finally:
        used = power.stop()
    return result | used


def measure_steps(check, name, runs=3, env=None):
    keys = ("metric", "unit", "value", "spread")
    return with_power(check, lambda: {key: value for key, value in bench_line(check, name, runs, env).items() if key in keys})


def stoker_steps(name):
    return lambda check: measure_steps(check, name)


def check_fused_steps(check):
    """With the kernels that passed their tests, together. If that fails, one by one."""
    check.has_fused_kernels()
    tested = check.results.get("fused kernels", {}).get("kernels_passed")
    kernels = [kernel for kernel in GPT2_KERNELS if tested is None or kernel in tested]
    if not kernels:
        raise Skipped("no kernel passed its test")

    def measure(kernels, runs):
        return measure_steps(check, "gpt2", runs, {"STOKER_BENCH_FUSED_KERNELS": ",".join(kernels)})

    check.values["kernels"] = kernels
    try:
        return measure(kernels, 3)
    except Failed as error:
        singly = check.values["singly"] = {}
        for kernel in kernels:
            try:
                singly[kernel] = measure([kernel], 1)["value"]
            except Failed as reason:
                singly[kernel] = str(reason)
        raise Failed(str(error)) from None


def baseline_command(check, name, how):
    options = ["--backend", "aot_eager"] if check.quick else []  # captures graphs, without a compiler
    return [sys.executable, check.args.bench / "device_baseline.py", how, json.dumps(setup_of(check, name)), *options]


class Compilation:
    """Runs the compiled peers in the background without measuring, so that torch.compile's cache on disk has their code: the
    compilation is work of the CPU, for longer than anything else here."""

    def __init__(self, check, names):
        self.check, self.process, self.deadline = check, None, 0.0
        self.names = names if check.args.torch else []

    def start(self):
        """Of the next model, unless one is being compiled."""
        if self.process is not None and self.process.poll() is None:
            return
        self.finish(0)
        if not self.names:
            return
        name = self.names.pop(0)
        self.check.deadline = time.monotonic() + 60  # of the list of models
        self.deadline = time.monotonic() + self.check.args.compile_limit
        with contextlib.suppress(Failed, OutOfTime):
            self.process = self.check.start(baseline_command(self.check, name, "compiled"), stdin=subprocess.DEVNULL)

    def finish(self, seconds):
        """Waits, so that the device is idle."""
        if self.process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0, min(seconds, self.deadline - time.monotonic())))
        self.check.end(self.process)
        self.process = None


def peer_steps(name, how):
    def run(check):
        check.has_torch()
        if how == "compiled" and check.quick and name != "mlp":
            raise Skipped("--quick compiles the mlp only")
        setup = setup_of(check, name)
        requests = b"0.05\n" if check.quick else b"4\n4\n4\n"

        def measure():
            out = check.run(baseline_command(check, name, how), stdin=requests)
            lines = [float(line) for line in out.split()]
            values = sorted(value * setup["units"] for value in lines[1:])
            return {"parameters": int(lines[0]), "unit": setup["unit"] + "/s", "value": values[len(values) // 2],
                    "spread": [values[0], values[-1]]}

        return with_power(check, measure)

    return run


def exported_steps(module):
    """A module that stoker-export wrote, in stokerd and in Python, alternating."""
    def run(check):
        check.has_torch()
        if check.quick and module != "mlp":
            raise Skipped("--quick measures the mlp only")
        options = ["--rounds", 1, "--seconds", 0.05] if check.quick else ["--rounds", 3, "--compile"]
        out = check.python("exported_steps.py", check.program("stokerd").parent, module, "--device", check.args.device, *options)
        return json.loads(out.strip().splitlines()[-1])

    return run


# ---- memory, power and profile


GPT2 = """
data: {{train: {{format: tokens, path: {tokens}, dtype: uint16, sequence: {{block_size: {context}}}}}}}
model: {{name: gpt, num_layers: {layers}, num_heads: {heads}, embed_dim: {width}, context_length: {context},
  vocab_size: {vocabulary}, dropout: 0.0}}
task: {{name: language_modeling}}
train: {{max_steps: 1000000, micro_batch_size: {batch}, precision: bf16}}
checkpoint: {{save_every_steps: null, save_every_seconds: null}}
metrics: {{log_every_steps: 5}}
"""


def stokerctl(check, run_dir, *words):
    return check.run([check.program("stokerctl"), "--run-dir", run_dir, "--json", *words])


def status_at(check, run_dir, process, step):
    """The status as soon as the run has reached the step."""
    while check.remaining() > 0:
        if process.poll() is not None:
            raise Failed(f"stokerd: exit {process.returncode}: {last_line(text_of(process.errors))}")
        try:
            status = json.loads(stokerctl(check, run_dir, "status"))
            if status["step"] >= step:
                return status
        except (Failed, ValueError, KeyError):
            pass  # not ready yet
        time.sleep(0.3)
    raise OutOfTime(f"step {step} was not reached")


def kernels_of(events, count=12):
    """The kernels that take most of the time of a trace."""
    total = {}
    for event in events:
        if event.get("cat") == "kernel":
            total[event["name"]] = total.get(event["name"], 0) + event["dur"]
    whole = sum(total.values())
    top = sorted(total.items(), key=lambda item: -item[1])[:count]
    return [{"name": name[:160], "share": round(us / whole, 4)} for name, us in top]


def idle_share(events):
    """Of the time from the first kernel of a trace to the end of the last one, the share in which none and no copy runs."""
    spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in events
                   if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    if not spans or spans[0][0] == max(stop for _, stop in spans):
        return None
    idle, end = 0, spans[0][0]
    for start, stop in spans:
        idle += max(0, start - end)
        end = max(end, stop)
    return round(idle / (end - spans[0][0]), 4)


def check_memory(check):
    """GPT-2 in stokerd: memory before and after a profile, which runs plain steps, the profile, a checkpoint, and what a pause
    releases."""
    sizes = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50304, "batch": 16}
    if check.quick:
        sizes = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 256, "batch": 2}
    generator = random.Random(1)
    tokens = check.work / "tokens.bin"
    ids = (generator.randrange(sizes["vocabulary"]) for _ in range(200 * sizes["context"]))
    tokens.write_bytes(array("H", ids).tobytes())
    config, run_dir = check.work / "gpt2.yaml", check.work / "gpt2"
    config.write_text(GPT2.format(tokens=tokens, **sizes))
    power = Power(check.args.device)
    power.start()
    log_start = check.log.tell()
    try:
        with check.running(check.stokerd(config, run_dir, [])) as process:
            measure_memory(check, run_dir, process)
            released = pause_and_release(check, run_dir)
            check.values["released"] = {"reserved_bytes": released.get("device_reserved_bytes", 0), "used_mib": used_mib(check)}
            stokerctl(check, run_dir, "resume")
            status_at(check, run_dir, process, released["step"] + 10)
            process.terminate()
            process.wait(max(1, check.remaining()))
    finally:
        check.values |= power.stop()
        check.values["graphs"] = graphs_captured(check, log_start)
    return {}


def measure_memory(check, run_dir, process):
    values = check.values
    before = status_at(check, run_dir, process, 40)
    values["before"] = before["memory"]
    profile = json.loads(stokerctl(check, run_dir, "profile", "5", "--kernels"))
    values["profile"] = {key: value for key, value in profile.items() if not key.endswith("path")}
    after = status_at(check, run_dir, process, before["step"] + 40)
    values["after"] = after["memory"]
    values |= {key: after[key] for key in ("step_time_ms", "device_time_ms", "samples_per_second")}
    kernels = run_dir / "profiles" / Path(profile.get("kernels_path", "")).name
    if kernels.is_file():
        events = json.loads(kernels.read_text())["traceEvents"]
        values |= {"kernels": kernels_of(events), "trace_idle": idle_share(events)}
        with gzip.open(check.args.folder / "kernels.json.gz", "wb") as file:
            file.write(kernels.read_bytes())
    stokerctl(check, run_dir, "checkpoint")
    values["stall_ms"] = status_at(check, run_dir, process, 0)["checkpoint"]["stall_ms"]
    checkpoint = max((run_dir / "checkpoints").glob("step-*"))
    values["checkpoint_bytes"] = sum(file.stat().st_size for file in checkpoint.iterdir())


def used_mib(check):
    """Of all processes, by nvidia-smi."""
    if not check.is_cuda:
        return 0
    query = ["nvidia-smi", f"--id={check.args.device.partition(':')[2] or 0}", "--query-gpu=memory.used"]
    return float(check.run([*query, "--format=csv,noheader,nounits"]))


def check_copies(check):
    """What the stall of a checkpoint is compared with."""
    check.has_torch()
    if not check.is_cuda:
        raise Skipped("needs a GPU")
    return {"copy_gb_per_s": copy_bandwidth(check)}


def copy_bandwidth(check):
    """From the device to page-locked memory."""
    code = """
import time, torch
on_device = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
on_host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
for i in range(3):
    start = time.perf_counter()
    on_host.copy_(on_device)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
print((1 << 30) / seconds / 1e9)
"""
    return round(float(check.run([sys.executable, "-c", code]).split()[-1]), 2)


# ---- CIFAR-10


CIFAR_VALUES = {"steps": "step", "samples_per_second": "samples_per_second", "data_wait_ms": "data_wait_ms",
                "step_time_ms": "step_time_ms"}  # of the last record


def check_cifar(check):
    """ResNet-20 of the paper (91.25 %), in fewer epochs."""
    data = check.args.cifar10
    if data is None:
        raise Skipped("needs --cifar10 FOLDER")
    if data.is_file():
        with tarfile.open(data) as archive:  # tar(1) would need xz(1)
            archive.extractall(check.work, filter="data")
        data = check.work / "cifar10"
    run_dir = check.work / "cifar"
    steps = 4 if check.quick else 70 * 391
    settings = [f"data.train.path={data / 'train'}", f"data.val.path={data / 'test'}", "model.name=resnet20",
                f"train.max_steps={steps}", f"checkpoint.save_every_steps={steps}", "eval.checkpoints=latest",
                f"feed.num_workers={2 if check.quick else 12}"]
    if check.quick:
        settings += ["train.micro_batch_size=4", "eval.batch_size=4"]
    begin = time.monotonic()
    try:
        check.run(check.stokerd(check.args.bench / "convergence" / "cifar.yaml", run_dir, settings))
    finally:
        rows = run_dir / "metrics" / "train.jsonl"
        lines = rows.read_text().splitlines(keepends=True) if rows.exists() else []
        last = next((json.loads(line) for line in reversed(lines) if line.endswith("\n")), {})
        check.values["training_s"] = round(time.monotonic() - begin, 1)
        check.values |= {to: last[key] for to, key in CIFAR_VALUES.items() if key in last}
    check.run([check.program("stoker-eval"), "--run-dir", run_dir, "--once"])
    evaluated = json.loads((run_dir / "metrics" / "eval.jsonl").read_text().splitlines()[-1])
    check.values["accuracy"] = evaluated["accuracy"]
    if not check.quick and evaluated["accuracy"] < 0.91:
        raise Failed(f"accuracy {evaluated['accuracy']:.4f} after {steps} steps, less than 0.91")
    return {}


# ---- compute-sanitizer


def sanitizer_check(tool, tests, is_of_kernels=False):
    def run(check):
        if is_of_kernels:
            check.has_fused_kernels()
        return check_sanitizer(check, tool, tests, is_of_kernels)

    return run


def check_sanitizer(check, tool, tests, is_of_kernels):
    installed = map(str, Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))
    sanitizer = shutil.which("compute-sanitizer") or next(installed, None)
    if sanitizer is None:
        raise Skipped("compute-sanitizer is not installed")
    options = ["--report-api-errors", "no"] if tool == "memcheck" else []
    if is_of_kernels:  # in stoker's namespace; those of NVIDIA's libraries, which are slow, synchronize in other ways
        options += ["--kernel-name", "kernel_substring=stoker"]
    out = check.run([sanitizer, "--tool", tool, *options, "--error-exitcode", "9", check.program("cuda_test"),
                     f"--gtest_filter={tests}"], accept=(0, 1, 9))
    check.values["passed"] = int((re.search(r"\[  PASSED  \] (\d+) test", out) or [0, "0"])[1])
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", out)
    if not summary or int(summary[-1]) > 0:
        raise Failed(f"{summary[-1] if summary else 'no summary of'} errors; see the log")
    if failed := re.findall(r"^\[  FAILED  \] (\S+) \(", out, re.M):
        raise Failed(f"no errors, but {', '.join(failed)} failed")
    if check.values["passed"] == 0:
        raise Failed("no test ran")
    return {"errors": 0}


# ---- All checks: part -> (name, most seconds, function). A part takes less than LIMIT.

PARTS = {
    "start": [
        ("libraries", 40, check_libraries),
        ("stoker-libtorch", 40, check_selection),
        ("first steps", 60, check_first_steps),
        ("attention", 50, attention_check({})),
        ("attention, NVIDIA's folder in LD_LIBRARY_PATH", 35, attention_check({"LD_LIBRARY_PATH": ""})),
        ("attention without cuDNN", 35, attention_check({"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"})),
    ],
    "tests": [
        ("cuda_test", 200, cuda_test("-*DoesNotFit*:CudaKernelsTest.*")),
        ("fused kernels", 50, check_kernels),
    ],
    "resume": [
        ("bit-exact resume", 80, check_resume),
        ("bit-exact pause --release", 50, check_release),
    ],
    "memory": [
        ("gpt2 in stokerd", 90, check_memory),
        ("copies to the host", 30, check_copies),
        ("cuda_test out of memory", 40, cuda_test("*DoesNotFit*")),
    ],
    # The others run between two measurements of stoker: a device slows down as it gets warm.
    "gpt2": [
        ("gpt2 stoker", 40, stoker_steps("gpt2")),
        ("gpt2 eager", 40, peer_steps("gpt2", "eager")),
        ("gpt2 compiled", 150, peer_steps("gpt2", "compiled")),
        ("gpt2 stoker again", 40, stoker_steps("gpt2")),
        ("gpt2 fused kernels", 60, check_fused_steps),
    ],
    "resnet50": [
        ("resnet50 stoker", 70, stoker_steps("resnet50")),
        ("resnet50 eager", 70, peer_steps("resnet50", "eager")),
        ("resnet50 compiled", 260, peer_steps("resnet50", "compiled")),
        ("resnet50 stoker again", 60, stoker_steps("resnet50")),
    ],
    "steps": [
        (f"{name} {how}", seconds, stoker_steps(name) if how == "stoker" else peer_steps(name, how))
        for name in ("mlp", "blstm")
        for how, seconds in (("stoker", 50), ("eager", 50), ("compiled", 130))
    ],
    "exported": [(f"exported {module}", 110, exported_steps(module)) for module in ("mlp", "resnet18", "gpt", "lstm")],
    "published": [
        (f"{experiment} {row}", seconds, published(experiment, row))
        for experiment in ("mlp", "blstm")
        for row, seconds in (("stokerd", 80), ("loop", 60), ("DataLoader", 80))
    ],
    "cifar10": [("cifar10", 300, check_cifar)],
    "sanitizer": [
        ("memcheck, fused kernels", 110, sanitizer_check("memcheck", "CudaKernelsTest.*", is_of_kernels=True)),
        ("racecheck, fused kernels", 110, sanitizer_check("racecheck", "CudaKernelsTest.*", is_of_kernels=True)),
        # Tests that capture, replay, copy and resume.
        ("memcheck", 240, sanitizer_check("memcheck", "*SamplesNewDropoutMask*:*ResumesBitForBit*")),
    ],
}
# They measure nothing: torch.compile may run next to them.
UNTIMED_PARTS = ("tests", "resume", "sanitizer")


def device_name(device):
    if not device.startswith("cuda"):
        return f"no GPU ({device})"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return ""
    index = int(device.partition(":")[2] or 0)
    return lines[index] if index < len(lines) else ""


def find_torch(device):
    """Folder and versions of the torch of this Python, if it can use the device."""
    code = """
import json, sys, torch
has_gpu = torch.cuda.is_available()
try:
    cudnn = torch.backends.cudnn.version() if has_gpu else None
except RuntimeError as error:
    cudnn = str(error)
found = {"folder": torch.__path__[0], "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": cudnn}
print(json.dumps(found if has_gpu or "cuda" not in sys.argv[1] else None))
"""
    try:
        result = subprocess.run([sys.executable, "-c", code, device], capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        print("gpu_check: torch does not load", flush=True)
        return None
    print(result.stderr, end="", flush=True)
    return json.loads(result.stdout.strip().rpartition("\n")[2] or "null")


def write_page(folder, results_path):
    page = gpu_page.page_of(gpu_page.read_results(results_path))
    (folder / "page.md").write_text(page)
    return page


def run_check(check, seconds, function):
    """Status and values."""
    check.deadline = time.monotonic() + seconds
    check.values = {}
    try:
        return "passed", check.values | function(check)
    except Skipped as error:
        status, reason = "skipped", str(error)
    except Failed as error:
        status, reason = "failed", str(error)
    except (OutOfTime, subprocess.TimeoutExpired) as error:
        status, reason = "out of time", str(error)
    except Exception as error:  # of this program; the other checks continue
        status, reason = "failed", f"{type(error).__name__}: {error}"[:ERROR_LENGTH]
    return status, check.values | {"reason": reason}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--bin", type=Path, required=True, help="folder of stokerd")
    parser.add_argument("--tests", type=Path, required=True, help="folder of cuda_test")
    parser.add_argument("--bench-bin", type=Path, required=True, help="folder of stoker-bench-device")
    parser.add_argument("--config", type=Path, required=True, help="folder of the example configurations")
    parser.add_argument("--module", type=Path, help="libstoker_cuda.so")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--shorten", type=float, default=1, help="divide the time of each check by this")
    parser.add_argument("--compile-limit", type=float, default=240, help="seconds of a compilation next to tests")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--cifar10", type=Path)
    args = parser.parse_intermixed_args()
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        print(f"gpu_check: unknown part {unknown[0]}; one of: {', '.join(PARTS)}", file=sys.stderr)
        sys.exit(64)
    return args


def main():
    args = parse_arguments()
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the program that runs
    args.bench = Path(__file__).resolve().parent
    for name in ("folder", "bin", "tests", "bench_bin", "config"):
        setattr(args, name, getattr(args, name).resolve())
    args.cifar10 = args.cifar10.resolve() if args.cifar10 else None
    args.folder.mkdir(parents=True, exist_ok=True)
    gpu, args.torch = device_name(args.device), find_torch(args.device)
    if not gpu:
        sys.exit("gpu_check: nvidia-smi does not list " + args.device)
    results_path, bad, is_complete = args.folder / "results.jsonl", False, True
    decided = {"passed"} | (set() if args.retry else {"failed"})
    print(f"{gpu}; torch: {args.torch['folder'] if args.torch else 'none'}", flush=True)

    def remaining():
        return args.limit - (time.monotonic() - begin)

    def progress(text):
        print(f"[{time.monotonic() - begin:4.0f} s] {text}", flush=True)

    if results_path.exists() and not results_path.read_bytes().endswith(b"\n"):
        results_path.write_text(results_path.read_text() + "\n")  # a call was ended while it wrote
    with open(args.folder / "log", "ab") as log:
        check = Check(args, log)
        check.results = {result["check"]: result for result in gpu_page.read_results(results_path) if result["gpu"] == gpu}
        planned = [(part, *each) for part in args.parts or PARTS for each in PARTS[part]
                   if check.results.get(each[0], {}).get("status") not in decided]
        compiled = [name.removesuffix(" compiled") for _, name, _, _ in planned if name.endswith(" compiled")]
        compilation = Compilation(check, [name for name in compiled if name == "mlp" or not args.quick])
        try:
            for part, name, most, function in planned:
                # A busy machine does not fail tests.
                seconds, least = most * (4 if args.quick else 1) / args.shorten, most / args.shorten / 2  # most need less
                if part not in UNTIMED_PARTS:
                    compilation.finish(max(0, remaining() - least))
                if remaining() < least:
                    is_complete = False
                    progress(f"{part}: {name}: no time left")
                    continue
                if part in UNTIMED_PARTS:
                    compilation.start()
                log.write(f"\n==== {part}: {name}\n".encode())
                start, log_start = time.monotonic(), log.tell()
                seconds = min(seconds, remaining())
                progress(f"{part}: {name}, at most {seconds:.0f} s")
                status, values = run_check(check, seconds, function)
                result = {"part": part, "check": name, "status": status, "gpu": gpu, "quick": args.quick,
                          "seconds": round(time.monotonic() - start, 1), **values}
                causes_warnings = part in ("tests", "sanitizer") or name.startswith("cuda_test")  # on purpose
                if not causes_warnings and (warnings := warnings_since(check, log_start)):
                    result["warnings"] = warnings
                check.results[name] = result
                with open(results_path, "a") as file:
                    file.write(json.dumps(result) + "\n")
                write_page(args.folder, results_path)
                bad |= status in ("failed", "out of time")
                progress(f"{part}: {name}: {status} in {result['seconds']} s {values.get('reason', '')}".rstrip())
        finally:
            compilation.finish(0)
            shutil.rmtree(check.work, ignore_errors=True)
    print("\n" + write_page(args.folder, results_path))
    if not is_complete:
        print(f"Not complete: run it again with the same folder ({args.folder}).")
    sys.exit(1 if bad else 75 if not is_complete else 0)


if __name__ == "__main__":
    main()
