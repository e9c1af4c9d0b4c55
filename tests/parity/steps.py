#!/usr/bin/env python3
"""steps.py VARIABLE [-- STEP]…: the steps of a parity test, one after another in one process, because the libraries take longer to
import than many steps take. A step is one of
    import MODULE…              exit with 77 if one cannot be imported; VARIABLE selects a Python that can
    SCRIPT.py ARGUMENT…         main() of a script of this folder
    [NAME=VALUE…] PROGRAM ARGUMENT…
A test program (with --gtest_filter) must have passed a test, and have said that it compares with what each NAME names.
A step that fails ends the test. Prints how long each took."""
import importlib
import os
import re
import subprocess
import sys
import time


def import_modules(variable, names):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"skipped: {sys.executable} cannot import {name} (set {variable}): {error}")
            sys.exit(77)


def run_script(words):
    sys.argv = words
    return importlib.import_module(words[0].removesuffix(".py")).main()


def run_program(words):
    variables, names = dict(os.environ), []
    while re.match(r"\w+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
        names.append(name)
    sys.stdout.flush()
    if not any(word.startswith("--gtest_filter") for word in words):
        return subprocess.run(words, env=variables, check=False).returncode
    result = subprocess.run(words, env=variables, check=False, stdout=subprocess.PIPE, encoding="utf-8", errors="replace")
    print(result.stdout, end="")
    return result.returncode or test_nothing(result.stdout, names)


def test_nothing(output, names):
    """1, with a message, if a test program has compared nothing, or not with what the variables `names` name."""
    if not re.search(r"^\[  PASSED  \] [1-9]", output, re.MULTILINE):
        print("no test has passed: the filter matches none, or all were skipped")
        return 1
    for name in names:
        if f"compares with {name}\n" not in output:
            print(f"the program does not read {name}")
            return 1
    return 0


def main():
    variable, steps = sys.argv[1], []
    for word in sys.argv[2:]:
        if word == "--":
            steps.append([])
        else:
            steps[-1].append(word)
    for step in steps:
        what, began = " ".join(step[:2]), time.monotonic()
        if step[0] == "import":
            import_modules(variable, step[1:])
        elif failed := run_script(step) if step[0].endswith(".py") else run_program(step):
            sys.exit(failed)
        print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
