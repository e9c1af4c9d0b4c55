#!/usr/bin/env python3
"""steps.py [-- STEP]…: the steps of a parity test, one after another in one process, because the libraries take longer to
import than many steps take. A step is one of
    import MODULE…              exit with 77 if one cannot be imported
    SCRIPT.py ARGUMENT…         main() of a script of this folder
    [NAME=VALUE…] PROGRAM ARGUMENT…
A step that fails ends the test. Prints how long each took."""
import importlib
import os
import re
import subprocess
import sys
import time


def import_modules(names):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"skipped: {sys.executable} cannot import {name}: {error}")
            sys.exit(77)


def run_script(words):
    sys.argv = words
    return importlib.import_module(words[0].removesuffix(".py")).main()


def run_program(words):
    variables = dict(os.environ)
    while re.match(r"\w+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    sys.stdout.flush()
    return subprocess.run(words, env=variables, check=False).returncode


def main():
    steps = []
    for word in sys.argv[1:]:
        if word == "--":
            steps.append([])
        else:
            steps[-1].append(word)
    for step in steps:
        what, began = " ".join(step[:2]), time.monotonic()
        if step[0] == "import":
            import_modules(step[1:])
        elif failed := run_script(step) if step[0].endswith(".py") else run_program(step):
            sys.exit(failed)
        print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
