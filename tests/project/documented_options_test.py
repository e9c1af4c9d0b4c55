#!/usr/bin/env python3
"""documented_options_test.py ROOT BIN PROGRAM…: checks that the programs have each option, and stokerctl each command, that the
documents name in commands, and that docs/operations.md has the exit codes of their --help. CHANGELOG.md can name earlier ones."""
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


@lru_cache(maxsize=None)
def names_of_commands(ctl):
    """Of the groups of --help: "  status     Show the training status"."""
    groups = help_of(ctl).split("\nExamples:")[0]
    return set(re.findall(r"^  ([a-z][a-z-]+)\s", groups, re.MULTILINE))


def command_of(words):
    """The first word that is neither an option nor the value of one that precedes it; None without one."""
    previous = ""
    for word in words:
        if not word.startswith("-") and previous not in ("--run-dir", "--socket"):
            return word
        previous = word
    return None


class Checker:
    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        self.commands = names_of_commands(str(folder / "stokerctl"))
        self.num_options, self.num_commands = 0, 0

    def check(self, text):
        """The complaints about a document."""
        return [f"{complaint}: {command.strip()}" for command in commands_of(text) for complaint in self.check_command(command)]

    def check_command(self, command):
        words = command.split()
        names = [i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] in self.programs]
        if names:
            words = words[names[-1]:]
            program = words[0].rsplit("/", 1)[-1]
        elif words and words[0] in self.commands:
            program, words = "stokerctl", ["stokerctl", *words]
        else:
            return
        allowed = options_of(str(self.folder / program))
        name = command_of(words[1:]) if program == "stokerctl" else None
        if name in self.commands:
            self.num_commands += 1
            allowed = allowed | options_of(str(self.folder / program), name)
        elif name and re.fullmatch(r"[a-z][a-z-]*", name):  # not COMMAND or …
            yield f"{program} has no command {name}"
        # Without its program, `top -H` could be another one.
        named = OPTION.findall(" ".join(words[1:]))
        for option in named if names else [each for each in named if each.startswith("--")]:
            self.num_options += 1
            if option not in allowed:
                yield f"{program} has no option {option}"


def exit_codes_of_help(text):
    """Those of "Exit codes: 0 success, 64 usage error, …"."""
    return {int(code) for code in re.findall(r"(?:^|,)\s*(\d+)\s", re.search(r"Exit codes: (.*?)\.\s", text + "\n", re.DOTALL)[1])}


def exit_codes_of_page(text, program):
    """Those of the row "| `program` | 0, 64; others |"."""
    row = re.search(rf"^\| `{program}` \| ([\d, ]+)", text, re.MULTILINE)
    return {int(code) for code in row[1].split(", ")} if row else set()


def check_exit_codes(root, folder, programs):
    assert exit_codes_of_help("Exit codes: 0 done,\n64 usage, 65\ncorrupt, or 70, 143 forced.\n") == {0, 64, 65, 143}
    page = (root / "docs/operations.md").read_text()
    for program in programs:
        theirs, ours = exit_codes_of_help(help_of(str(folder / program))), exit_codes_of_page(page, program)
        for code in sorted(theirs ^ ours):
            yield f"exit code {code} of {program} is only in {'its --help' if code in theirs else 'docs/operations.md'}"
        for code in sorted(ours - {0}):
            if f"- **{code}**" not in page:
                yield f"docs/operations.md does not explain exit code {code} of {program}"


def check_checker(checker):
    """A checker that finds nothing would accept everything."""
    for command, expected in (("stokerctl foo", "no command foo"), ("stokerctl --json foo", "no command foo"),
                              ("stokerctl status --foo", "no option --foo"), ("stoker-web --foo", "no option --foo"),
                              ("stokerctl --run-dir list status", None), ("status --json", None)):
        for text in (f"Type `{command}`.", f"```\n{command} | less\n```"):
            complaints = checker.check(text)
            is_expected = len(complaints) == 1 and expected in complaints[0] if expected else not complaints
            assert is_expected, (text, complaints)


def main():
    root, folder, programs = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    check_checker(Checker(folder, programs))
    checker, bad = Checker(folder, programs), []
    for document in [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md"))]:
        if document.name != "CHANGELOG.md":
            bad += [f"{document.relative_to(root)}: {complaint}" for complaint in checker.check(document.read_text())]
    bad += check_exit_codes(root, folder, programs)
    print(f"{checker.num_commands} commands and {checker.num_options} options in the documents")
    print("\n".join(bad), end="", file=sys.stderr)
    return bool(bad) or checker.num_commands < 50 or checker.num_options < 50


if __name__ == "__main__":
    sys.exit(main())
