#!/usr/bin/env python3
"""The figures of README.md, from the tables of the documents: check_figures.py [--check | --write] [--bin FOLDER] [--baselines FOLDER]

A figure is a time of stoker, divided by a baseline's: the lowest and the highest of all rows of the tables that have the baseline.

Without --check or --write, runs the benchmarks behind them and compares each ratio to a baseline, measured in the same run, with
its range in README.md. Prints a line per ratio; fails if one is outside of its range, or if a figure has no ratio. The machine
should be idle; it takes about an hour. An improvement fails, too: then the tables are to be changed.

  --check           run nothing: only check that README.md has the ranges of the tables
  --write           write them into README.md
  --bin FOLDER      of the benchmarks (default: build/release/bin)
  --baselines FOLDER  created by scripts/bench_baselines.sh; without it, figures that need it are named, not measured.
                    STOKER_DATA: a folder of photographs for them
"""
import argparse
import collections
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BENCHMARKS = "docs/benchmarks.md"
BEGIN, END = "<!-- figures: bench/check_figures.py --write -->\n", "<!-- end of figures -->"


# ---- Tables

Table = collections.namedtuple("Table", "header rows")


def tables_of(page, heading):
    """Of the section; its rows have as many cells as the header."""
    section = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    if not section:
        sys.exit(f'{page}: there is no section "{heading}", from which bench/check_figures.py takes figures')
    tables = []
    for block in re.findall(r"(?:^\|.*\n)+", section[1], re.M):
        rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()]
        if any(len(row) != len(rows[0]) for row in rows):
            sys.exit(f"{page}: a table with rows of different length in \"{heading}\": {block.splitlines()[0]}")
        tables.append(Table(rows[0], rows[2:]))
    return tables


def numbers_of(cell):
    """Those of a cell such as "1,317", "65 [63, 69]" or "1.91 · 1.94": the medians, without what is in brackets."""
    parts = re.sub(r"\[.*?\]|\(.*?\)", "", cell).split("·")
    found = [re.match(r"\s*(\d+(?:,\d{3})*(?:\.\d+)?)", part) for part in parts]
    if not all(found) and cell not in ("", "-"):
        sys.exit(f'bench/check_figures.py reads no number in the cell "{cell}"')
    return [float(each[1].replace(",", "")) for each in found if each]


def column(page, heading, name, is_rate=False):
    """The column `name` of all tables that have it; the inverse of rates."""
    values = [value for table in tables_of(page, heading) if name in table.header
              for row in table.rows for value in numbers_of(row[table.header.index(name)])]
    return [1 / value for value in values] if is_rate else values


def columns(page, heading, pattern, baseline):
    """Columns that match `pattern`, relative to the column `baseline`, in each row that has both."""
    return [value / base for table in tables_of(page, heading) if baseline in table.header
            for row in table.rows for base in numbers_of(row[table.header.index(baseline)])
            for name, cell in zip(table.header, row) if fnmatch.fnmatch(name, pattern) for value in numbers_of(cell)]


def rows(page, heading, column_pattern, is_baseline=lambda name: True, is_rate=False):
    """The rows of stoker, relative to the other ones, or to those of `is_baseline`, in each column that matches."""
    ratios = []
    for table in tables_of(page, heading):
        own = [row for row in table.rows if row[0].startswith("stoker")]
        others = [row for row in table.rows if not row[0].startswith("stoker") and is_baseline(row[0])]
        for i in range(1, len(table.header)):
            if fnmatch.fnmatch(table.header[i], column_pattern):
                ratios += [value / base for one in own for other in others for value in numbers_of(one[i]) for base in numbers_of(other[i])]
    return [1 / ratio for ratio in ratios] if is_rate else ratios


def cells(page, heading, row_name, baseline):
    """The column "stoker" of the rows named `row_name`, relative to a column that starts with `baseline`."""
    return [value / base for table in tables_of(page, heading) if "stoker" in table.header
            for row in table.rows if row[0] == row_name for value in numbers_of(row[table.header.index("stoker")])
            for name, cell in zip(table.header, row) if name.startswith(baseline) for base in numbers_of(cell)]


def next_to_others():
    """Steps relative to those of a trainer that is alone."""
    section = tables_of(BENCHMARKS, CHECKPOINTS)
    return [value for table in section if table.header[0].startswith("running next to training")
            for row in table.rows for cell in row[1:] for value in numbers_of(cell)]


# ---- Figures

# what: of README.md; values: the ratios of the tables; measured: a benchmark with the metric (a glob) and the baseline of its lines,
# whose ratios are of rates or of times.
Figure = collections.namedtuple("Figure", "what values measured")
Measured = collections.namedtuple("Measured", "bench metric baseline is_rate")
PHOTOGRAPHS = ("stoker-bench", "--runs", "3", "--only", "feed-images")
STEPS, CHECKPOINTS = "Training steps on the CPU", "Checkpoints and evaluation"


def steps(baseline):
    return [Measured(("stoker-bench-train", "--runs", "3", "--only", bench), "*", baseline, True)
            for bench in ("step", "step-gpt2", "step-llama", "step-bert", "step-captioner", "step-vit", "step-inception_v3")]


def snapshot_stall(baseline):
    return [Measured(("stoker-bench", "--runs", "7", "--only", "snapshot-stall"), "snapshot of *", baseline, False)]


FIGURES = [
    Figure("training step: eager PyTorch",
           lambda: column(BENCHMARKS, STEPS, "relative to eager PyTorch", is_rate=True) +
           columns(BENCHMARKS, STEPS, "stokerd", "eager PyTorch"), steps("eager PyTorch")),
    Figure("training step: `torch.compile`",
           lambda: column(BENCHMARKS, STEPS, "relative to torch.compile", is_rate=True) +
           columns(BENCHMARKS, STEPS, "stokerd", "torch.compile"), steps("torch.compile")),
    Figure("step of several processes: DistributedDataParallel",
           lambda: rows(BENCHMARKS, "Several processes", "*", lambda name: name.startswith("PyTorch, DistributedDataParallel")), []),
    Figure("step next to an evaluation or a save: step alone", next_to_others,
           [Measured(("stoker-bench", "--runs", "5", "--seconds", "10", "--only", "evaluator-without-cpu"), "*priority *", "no other load", False)]),
    Figure("stall by a checkpoint: memcpy",
           lambda: cells(BENCHMARKS, CHECKPOINTS, "training stall, ms", "memcpy"), snapshot_stall("memcpy")),
    Figure("stall by a checkpoint: PyTorch's `async_save`",
           lambda: [ratio for section in (CHECKPOINTS, "Several processes")
                    for ratio in cells(BENCHMARKS, section, "training stall, ms", "DCP `async_save`")], snapshot_stall("dcp-async")),
    Figure("decoding a photograph: other libraries", lambda: rows(BENCHMARKS, "Image decoding", "photographs", is_rate=True),
           [Measured(PHOTOGRAPHS, "*, random crops to 224x224, 1 thread", baseline, True) for baseline in ("dali", "tf.data", "ffcv")]),
    Figure("reading an image of 32 x 32: other libraries",
           lambda: rows(BENCHMARKS, "Image decoding", "files of 32 x 32", is_rate=True) +
           rows(BENCHMARKS, "Image decoding", "the same*", is_rate=True), []),
]


def in_print(ratio):
    return f"{ratio:.2f}"


def range_of(figure):
    values = figure.values()
    if not values:
        sys.exit(f'no table has a row for "{figure.what}"; bench/check_figures.py says which it looks for')
    return min(values), max(values)


def block():
    lines = ["| time, relative to that of | lowest | highest |", "|---|---|---|"]
    for figure in FIGURES:
        low, high = range_of(figure)
        lines.append(f"| {figure.what} | {in_print(low)} | {in_print(high)} |")
    return "".join(line + "\n" for line in lines)


def parts_of(text):
    before, begin, rest = text.partition(BEGIN)
    between, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md: there is no {BEGIN.strip()} … {END}")
    return before, between, after


def check():
    is_current = True
    written = parts_of(README.read_text(encoding="utf-8"))[1].splitlines()
    for line in block().splitlines():
        if line not in written:
            print(f"README.md: not the range of the tables: write \"{line}\" (bench/check_figures.py --write)")
            is_current = False
    if is_current and written != block().splitlines():
        print("README.md: other lines than those of the tables (bench/check_figures.py --write)")
        is_current = False
    return is_current


def write():
    before, _, after = parts_of(README.read_text(encoding="utf-8"))
    README.write_text(before + BEGIN + block() + END + after, encoding="utf-8")


# ---- Measurements

def lines_of(command, arguments):
    program = [arguments.bin / command[0], *command[1:]]
    if arguments.baselines:
        program += ["--baselines", arguments.baselines]
    environment = {"STOKER_PYTHON": str(ROOT / ".deps" / "venv" / "bin" / "python"), **os.environ}
    done = subprocess.run(program, stdout=subprocess.PIPE, encoding="utf-8", env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, program))} exited with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(arguments):
    num_outside, lines = 0, {}
    for figure in FIGURES:
        low, high = (float(in_print(value)) for value in range_of(figure))
        if not figure.measured:
            print(f'not measured here: "{figure.what}"')
        for bench, metric, baseline, is_rate in figure.measured:
            if bench == PHOTOGRAPHS and not (arguments.baselines and os.environ.get("STOKER_DATA")):
                print(f'not measured: "{figure.what}" ({baseline}): needs --baselines and STOKER_DATA')
                continue
            if bench not in lines:
                lines[bench] = lines_of(bench, arguments)
            ratios = [line for line in lines[bench] if line.get("ratio") and
                      fnmatch.fnmatch(line["metric"], metric) and line.get("baseline") == baseline]
            if not ratios:
                print(f'no ratio: "{figure.what}": {" ".join(bench)} has no {metric} next to {baseline}')
                num_outside += 1
            for line in ratios:
                ratio = 1 / line["ratio"] if is_rate else line["ratio"]
                is_outside = not low <= float(in_print(ratio)) <= high
                num_outside += is_outside
                print(f'{"OUTSIDE" if is_outside else "within "} {ratio:6.3f}  {figure.what}: {line["metric"]}, '
                      f'{line["processor"]}', flush=True)
    return num_outside == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--baselines")
    arguments = parser.parse_args()
    if arguments.write:
        write()
        return 0
    if not check():
        return 1
    return 0 if arguments.check or measure(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
