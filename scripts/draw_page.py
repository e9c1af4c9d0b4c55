#!/usr/bin/env python3
"""draw_page.py BIN [--steps N]: trains the configuration of README.md and writes docs/images/page.png, its page in stoker-web.

BIN: the folder of the programs. The screenshot is made at step N (default: 600), while the run trains and is evaluated. Needs
Debian's chromium.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/ctl"))
import browser  # noqa: E402


def last_step(run):
    path = run / "metrics/train.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def is_served(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except OSError:
        return False


def wait(programs, is_done):
    while not is_done():
        if any(each.poll() for each in programs):
            sys.exit("a program has failed; see above")
        time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--set", action="append", default=[], help="of stokerd")
    arguments = parser.parse_args()
    programs, listen = [], "127.0.0.1:9763"
    with tempfile.TemporaryDirectory(prefix="stoker-") as work:
        runs = pathlib.Path(work) / "runs"
        run = runs / "gpt"
        runs.mkdir()
        config = pathlib.Path(work) / "gpt.yaml"
        config.write_text(re.search(r"^```yaml\n(data:.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1])
        settings = [word for each in arguments.set for word in ("--set", each)]
        try:
            for command in (["stokerd", "--config", config, "--run-dir", run, *settings], ["stoker-eval", "--run-dir", run, "--follow"],
                            ["stoker-web", "--listen", listen, runs]):
                programs.append(subprocess.Popen([arguments.bin.resolve() / command[0], *command[1:]], stdout=subprocess.DEVNULL))
            wait(programs, lambda: last_step(run) >= arguments.steps and is_served(f"http://{listen}/"))
            page = browser.Browser()
            try:
                page.resize(1280, 1240)
                page.open(f"http://{listen}/")
                page.wait_for("document.body?.innerText.includes('Phases of a step')")
                time.sleep(3)  # of live updates
                page.screenshot(ROOT / "docs/images/page.png")
                assert not page.problems(), page.problems()
            finally:
                page.close()
        finally:
            for program in reversed(programs):
                program.terminate()
            for program in programs:
                program.wait()


if __name__ == "__main__":
    main()
