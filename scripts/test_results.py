#!/usr/bin/env python3
"""Reports what a test run did: failed tests with the end of their output, and the line "N passed, N failed, N skipped";
tests/project/check_skips.py has the reasons of skipped ones.

Usage: scripts/test_results.py [--list SECONDS] FOLDER…

FOLDER is build/PRESET/test-results: ctest.xml of ctest and, for each program that ran as one test of ctest, NAME.xml of
GoogleTest, whose cases are counted instead. A program without such a file, which crashed, hung or ended early, is one failed
test, and so is one that ran no case; test-programs.txt in the folder above lists these programs.

  --list SECONDS  also lists the tests that took longer

Exit code: 0, or 1 if a test failed or none ran.
"""

import collections
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple("Case", "name seconds result text")  # result: passed, failed or skipped


def cases_of_program(path):
    root = ElementTree.parse(path).getroot()
    for case in root.iter("testcase"):
        name = f'{case.get("classname")}.{case.get("name")}'
        failures = [failure.text or failure.get("message", "") for failure in case.iter("failure")]
        skipped = case.find("skipped")
        if failures:
            yield Case(name, float(case.get("time", 0)), "failed", "\n".join(failures))
        elif skipped is not None or case.get("status") == "notrun" or case.get("result") == "skipped":
            yield Case(name, float(case.get("time", 0)), "skipped", "")
        else:
            yield Case(name, float(case.get("time", 0)), "passed", "")


def with_output(case, text):
    """A failed case with the end of what its program printed during it, which GoogleTest's file lacks."""
    _, found, output = text.partition(f"[ RUN      ] {case.name}\n")
    if case.result != "failed" or not found:
        return case
    lines = re.split(r"^\[  (?:FAILED|     OK) ", output, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    known = set(case.text.splitlines())
    return case._replace(text="\n".join([case.text.strip(), *[line for line in lines if line not in known][-30:]]))


def programs_of(folder):
    try:
        with open(os.path.join(folder, os.pardir, "test-programs.txt"), encoding="utf-8") as names:
            return set(names.read().split())
    except FileNotFoundError:
        return set()


def cases_of_folder(folder):
    programs = programs_of(folder)
    for test in ElementTree.parse(os.path.join(folder, "ctest.xml")).getroot().iter("testcase"):
        name, seconds = test.get("name"), float(test.get("time") or 0)
        text = "".join(out.text or "" for out in test.iter("system-out"))
        failed = test.find("failure") is not None or test.get("status") in ("fail", "disabled")
        program = os.path.join(folder, name + ".xml")
        if os.path.exists(program):
            cases = [with_output(case, text) for case in cases_of_program(program)]
            yield from cases
            # A crash after the last case, a leak that a sanitizer reports at the end.
            if failed and not any(case.result == "failed" for case in cases):
                yield Case(name, seconds, "failed", text)
            if not cases:
                yield Case(name, seconds, "failed", "no test ran")
        elif failed:
            yield Case(name, seconds, "failed", text)
        elif name in programs:
            yield Case(name, seconds, "failed", "the program ended without results")
        elif test.get("status") == "notrun" and "SKIP_" not in (test.find("skipped").get("message") or ""):
            yield Case(name, seconds, "failed", test.find("skipped").get("message") or "not run")
        elif test.find("skipped") is not None:
            yield Case(name, seconds, "skipped", "")
        else:
            yield Case(name, seconds, "passed", "")


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 64
    at_least = None
    if arguments[0] == "--list":
        at_least = float(arguments[1])
        arguments = arguments[2:]
    cases = []
    for folder in arguments:
        if os.path.exists(os.path.join(folder, "ctest.xml")):
            cases += cases_of_folder(folder)
    if at_least is not None:
        for case in sorted(cases, key=lambda case: -case.seconds):
            if case.seconds >= at_least:
                print(f"{case.seconds:8.1f} s  {case.name}")
    results = collections.Counter(case.result for case in cases)
    for case in cases:
        if case.result == "failed":
            print(f"FAILED: {case.name}")
            for line in case.text.strip().splitlines()[-60:]:
                print(f"    {line}")
    print(f'{results["passed"]} passed, {results["failed"]} failed, {results["skipped"]} skipped')
    return 1 if results["failed"] or not results["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
