#!/usr/bin/env python3
"""Compares the events of shared/base/log_events.h with the calls of the log: check_log_events.py ROOT

Fails if an event is logged nowhere, or if its fields are not those of its calls. Names and levels are
checked by the compiler.
"""
import pathlib
import re
import sys

FOLDERS = ("shared", "daemon", "evaluator", "feeder", "ctl")
STRING = r'"((?:[^"\\]|\\.)*)"'


def table(text):
    """The fields of each event."""
    rows = re.findall(r"\{LogTopic::k\w+,\s*" + STRING + r",\s*[k\w| ]+,\s*((?:" + STRING + r"\s*)+),", text)
    return {row[0]: " ".join(re.findall(STRING, row[1])).split() for row in rows}


def arguments(text, start):
    """The text from `start` to the parenthesis that closes the call."""
    depth, at = 1, start
    for match in re.finditer(STRING + r"|[(){}\[\]]", text[start:]):
        if match[0] in "({[":
            depth += 1
        elif match[0] in ")}]":
            depth -= 1
        at = start + match.end()
        if depth == 0:
            break
    return text[start : at - 1]


def calls(text):
    """Names and fields of the events that a file logs."""
    for match in re.finditer(r"\blog_(?:debug|info|warn|error)\(|\bkDropped = ", text):
        call = arguments(text, match.end())
        head = call.split("{", 1)[0]
        names = re.findall(STRING, head)
        yield names, re.findall(r"\{\s*" + STRING + r"\s*,", call)


def main():
    root = pathlib.Path(sys.argv[1])
    expected = table((root / "shared/base/log_events.h").read_text())
    logged = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.cc")):
            for names, fields in calls(path.read_text()):
                for name in names:
                    logged.setdefault(name, set()).update(fields)
    problems = []
    for name, fields in expected.items():
        fields = [field for field in fields if not field.endswith(".NAME")]  # as many as there are, such as metrics
        if name not in logged:
            problems.append(f"{name}: is logged nowhere")
        elif name != "log lines dropped" and logged[name] != set(fields):
            problems.append(f"{name}: the calls have the fields {sorted(logged[name])}, the table {sorted(fields)}")
    if not expected:
        problems.append("no events found")
    for problem in problems:
        print(f"shared/base/log_events.h: {problem}")
    return 1 if problems else 0


sys.exit(main())
