#!/usr/bin/env python3
"""documented_options_test.py ROOT BIN PROGRAM…: checks that the programs have each option, and stokerctl each command, that the
documents name in commands."""
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def commands_of(text):
    """The commands of a document: lines of code blocks, and code within a line."""
    for index, block in enumerate(text.split("```")):
        pieces = [block.replace("\\\n", " ")] if index % 2 else re.findall(r"`([^`]+)`", block)
        for piece in pieces:
            for line in piece.splitlines():
                yield from re.split(r"\||&&|&(?= |$)|;|\$\(|(?:^|\s)#\s.*", line)


@lru_cache(maxsize=None)
def help_of(*command):
    result = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, (command, result.stderr)
    return result.stdout


@lru_cache(maxsize=None)
def options_of(*command):
    """Of the lines that describe an option: "  -n,--lines N     Number of lines"."""
    lines = re.findall(r"^\s+(-.*?)(?:\s{2,}|$)", help_of(*command), re.MULTILINE)
    return {option for line in lines for option in OPTION.findall(line)}


def main():
    root, folder, programs = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    ctl = str(folder / "stokerctl")
    ctl_commands = set(re.findall(r"^  ([a-z][a-z-]+)(?:\s|$)", help_of(ctl).split("SUBCOMMANDS:")[-1], re.MULTILINE))
    bad, checked = [], 0
    for document in [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md"))]:
        for command in commands_of(document.read_text()):
            words = command.split()
            names = [i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] in programs]
            if names:
                words = words[names[-1]:]
                program = words[0].rsplit("/", 1)[-1]
            elif words and words[0] in ctl_commands:
                program, words = "stokerctl", ["stokerctl", *words]
            else:
                continue
            path = str(folder / program)
            allowed = options_of(path)
            if program == "stokerctl":
                name = next((word for word in words[1:] if word in ctl_commands), None)
                if name:
                    allowed = allowed | options_of(path, name)
            # Without its program, `top -H` could be another one.
            named = OPTION.findall(" ".join(words[1:]))
            for option in named if names else [each for each in named if each.startswith("--")]:
                checked += 1
                if option not in allowed:
                    bad.append(f"{document.relative_to(root)}: {program} has no option {option}: {command.strip()}")
    print("\n".join(bad) or f"{checked} options in commands of the documents exist", file=sys.stderr if bad else sys.stdout)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
