#!/usr/bin/env python3
"""Tests that were skipped: check_skips.py [--all] [--table FILE] RESULTS.xml…

The results are JUnit files of ctest or of GoogleTest programs (--gtest_output=xml:FILE). Prints a line for each reason, which
tests root adds, and a line for each skip that tests/expected_skips.txt does not expect on this machine and for this user;
fails if there is one, or if a file has no test. --all: what scripts/deps.sh installs must be there. The results of a
sanitizer are those below a folder asan, tsan or tsan-torch.
"""
import argparse
import collections
import ctypes
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = ("without:", "no-python", "no-peers", "no-tensorflow", "no:.deps/")


def succeeds(*command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def may_trace():
    child = os.fork()
    if child == 0:
        os._exit(0 if ctypes.CDLL(None).ptrace(0, 0, None, None) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def may_create_cgroup():
    """With cgroup v1 in the group of this process; with v2 in one of those above."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return os.access("/sys/fs/cgroup/memory" + path, os.W_OK)
        if not controllers and "memory" in text_of("/sys/fs/cgroup/cgroup.subtree_control"):
            return os.access("/sys/fs/cgroup", os.W_OK)
    return False


def text_of(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def has_python(*programs):
    return any(program and shutil.which(program) for program in programs)


def holds(condition, results):
    """Whether a condition of the table holds here; `results`: the file with the skip."""
    kind, _, value = condition.partition(":")
    if kind in ("no", "has") and value:
        return (ROOT / value).exists() == (kind == "has")
    if kind == "without" and value:
        return shutil.which(value, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/cuda/bin") is None
    environment = os.environ.get
    conditions = {
        "always": lambda: True,
        "not-root": lambda: os.geteuid() != 0,
        "no-avx2": lambda: re.search(r"\bavx2\b", text_of("/proc/cpuinfo")) is None or environment("ATEN_CPU_CAPABILITY") == "default",
        "no-avx512": lambda: re.search(r"\bavx512f\b", text_of("/proc/cpuinfo")) is None,
        "one-core": lambda: len(os.sched_getaffinity(0)) == 1,
        "no-mounts": lambda: not succeeds("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"),
        "no-namespaces": lambda: not succeeds("unshare", "--net", "--pid", "--fork", "--mount", "--mount-proc", "true"),
        "no-cgroups": lambda: not may_create_cgroup(),
        "no-ptrace": lambda: not may_trace(),
        "no-tbf": lambda: not succeeds(
            "unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "4mbit", "burst", "8kb", "latency", "10ms"),
        "no-autogroup": lambda: not succeeds("setsid", "--wait", "grep", "autogroup", "/proc/self/autogroup"),
        "nonlocal-bind": lambda: text_of("/proc/sys/net/ipv4/ip_nonlocal_bind").strip() == "1",
        "sanitizer": lambda: not {"asan", "tsan", "tsan-torch"}.isdisjoint(pathlib.Path(results).resolve().parts),
        "not-full": lambda: environment("STOKER_FAULT_TESTS") != "full",
        "not-bookworm": lambda: "VERSION_CODENAME=bookworm" not in text_of("/etc/os-release"),
        "no-python": lambda: not has_python(environment("STOKER_PYTHON"), str(ROOT / ".deps/venv/bin/python")),
        "no-peers": lambda: not has_python(environment("STOKER_TRANSFORMERS_PYTHON"), str(ROOT / ".deps/venv-peers/bin/python")),
        "no-tensorflow": lambda: not has_python(
            environment("STOKER_TENSORFLOW_PYTHON"), str(ROOT / ".deps/venv-tensorflow/bin/python")),
    }
    if condition not in conditions:
        sys.exit(f"expected_skips.txt: there is no condition {condition}")
    return conditions[condition]()


def read_table(path):
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.split(None, 2)
        if len(row) != 3:
            sys.exit(f"{path}:{number}: write CONDITION  TEST  REASON")
        rows.append(row)
    return rows


def reason_of(case):
    """Of a skipped case: GoogleTest prints it after FILE:LINE; the last line of a script is its reason."""
    if case.find("skipped") is None:
        return "a disabled test"
    message = case.find("skipped").get("message") or ""
    output = "\n".join(each.text or "" for each in case.iter("system-out"))
    if found := re.search(r"^\S+:\d+: Skipped\n(.+)", output, re.MULTILINE):
        return found[1].strip()
    if re.match(r"\S+:\d+\n", message):
        return message.split("\n")[1].strip()
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("[")]
    return re.sub(r"^(?:SKIP|skipped): ", "", lines[-1]) if lines else message.split("\n")[0] or "no reason"


def read_skips(results):
    """The name and reason of each skipped test of a file; the number of its tests."""
    skips, count = [], 0
    for suite in xml.etree.ElementTree.parse(results).iter("testsuite"):
        for case in suite.findall("testcase"):
            count += 1
            if case.find("skipped") is None and case.get("result") != "suppressed":
                continue
            name, group = case.get("name"), case.get("classname") or ""
            of_google = case.get("result") is not None
            skips.append((f"{group}.{name}" if of_google else name, reason_of(case)))
    return skips, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--table", type=pathlib.Path, default=ROOT / "tests" / "expected_skips.txt")
    parser.add_argument("results", nargs="+")
    arguments = parser.parse_args()
    table, known, expected, unexpected = read_table(arguments.table), {}, collections.OrderedDict(), []
    for results in arguments.results:
        skips, count = read_skips(results)
        if count == 0:
            unexpected.append(f"{results}: has no test")
        for name, reason in skips:
            for condition, test, text in table:
                if not fnmatch.fnmatchcase(name, test) or not fnmatch.fnmatchcase(reason, text + "*"):
                    continue
                if arguments.all and condition.startswith(INSTALLED):
                    continue
                key = (condition, results if condition == "sanitizer" else "")
                if key not in known:
                    known[key] = holds(condition, results)
                if known[key]:
                    expected.setdefault((condition, reason), []).append(name)
                    break
            else:
                unexpected.append(f"{name} was skipped, which tests/expected_skips.txt does not expect here: {reason}")
    for (condition, reason), names in expected.items():
        print(f"{len(names)} skipped ({names[0]}{', …' if len(names) > 1 else ''}), {condition}: {reason}")
    of_root = [name for (condition, _), names in expected.items() if condition == "not-root" for name in names]
    if of_root:
        print(f"root adds {len(of_root)} tests: {', '.join(of_root)}")
    for line in unexpected:
        print(line)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
