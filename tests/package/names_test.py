#!/usr/bin/env python3
"""names_test.py PREFIX…: every path, page and man page that the installed programs, units, man pages, settings and examples name
exists below one of the trees PREFIX…, which belong to one installation."""
import gzip
import pathlib
import re
import subprocess
import sys

prefixes = [pathlib.Path(name) for name in sys.argv[1:]]
# Statements about the source; the link that stoker-libtorch makes.
OF_SOURCE = {"scripts/generate.sh", "scripts/quickstart.sh"}
MADE_LATER = {"lib/stoker/torch"}
PROGRAM = r"stoker(?:d|ctl|-[a-z]+)"


def find(path):
    return next((prefix / path for prefix in prefixes if (prefix / path).exists()), None)


def read_text(file):
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    if data[:4] == b"\x7fELF":
        return subprocess.run(["strings", "-n", "6", file], check=True, capture_output=True, text=True).stdout
    return data.decode(errors="replace").replace("\\-", "-").replace("\\fR", "")


def anchors(page):
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def problems_of(text):
    for page, anchor in re.findall(r"(?<![\w/.-])docs/([\w-]+\.md)(?:#([\w-]+))?", text):
        found = find("share/doc/stoker/docs/" + page)
        if not found:
            yield f"docs/{page} is not installed"
        elif anchor and not any(name.startswith(anchor) for name in anchors(found)):  # `strings` may have its beginning only
            yield f"docs/{page} has no heading #{anchor}"
    for path in re.findall(r"(?<![\w/.-])(?:/usr/(?:local/)?)?((?:bin|lib|libexec|share)/(?:systemd/system/)?stoker[\w./@-]*\w)", text):
        if path not in MADE_LATER and not find(path):
            yield f"{path} is not installed"
    for path in re.findall(r"(?<![\w/.-])scripts/[\w.-]+\.(?:sh|py)", text):
        if path not in OF_SOURCE:
            yield f"{path} is only in a checkout"
    for name, section in re.findall(rf"({PROGRAM}|stoker\.yaml)(?:\\fB|\\fP)? ?\(([1-9])\)", text):
        if not find(f"share/man/man{section}/{name}.{section}") and not find(f"share/man/man{section}/{name}.{section}.gz"):
            yield f"there is no man page {name}({section})"


checked, problems = 0, set()
folders = ["bin", "libexec/stoker", "lib/systemd/system", "lib/sysusers.d", "lib/tmpfiles.d", "share/man", "share/stoker/config", "share/stoker/events",
           "share/stoker/monitoring", "share/stoker/plugin", "share/stoker/producer", "share/stoker/python", "../etc/stoker"]
for prefix in prefixes:
    for folder in folders:
        for file in sorted((prefix / folder).rglob("*")):
            if file.is_file():
                checked += 1
                problems |= {f"{file}: {problem}" for problem in problems_of(read_text(file))}
for problem in sorted(problems):
    print(problem)
if checked < 20:
    sys.exit(f"only {checked} files found")
sys.exit(bool(problems))
