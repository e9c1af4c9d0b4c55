#!/usr/bin/env python3
"""page_test.py BIN [--images DIR]: the page of stoker-web and a report of stokerctl in a headless Chromium.

BIN: the folder of the programs. The runs are written here. Skipped (exit code 77) without Chromium.
--images: also writes screenshots to DIR.
"""
import csv
import decimal
import fcntl
import io
import json
import math
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import xml.etree.ElementTree
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import browser  # noqa: E402

RECORDS = 100_000
CLASSES = [{"name": f"class with a long name {i}", "support": 100, "precision": 0.5, "recall": i / 12, "f1": 0.5} for i in range(12)]
ATTACK = "<img src=x onerror=\"window.attacked=1\">"


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def png(size):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(v for x in range(size) for v in (x * 255 // size, y * 255 // size, 128)) for y in range(size))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def record(step, loss, lr=0.1):
    return json.dumps({"step": step, "epoch": step // 1000, "loss": loss, "accuracy": 1 / (1 + loss), "lr": lr, "grad_norm": 1.0, "samples_seen": step * 16,
                       "samples_per_second": 900.0, "step_time_ms": 20.0, "data_wait_ms": 2.0, "checkpoint_stall_ms": 0.0, "degraded": 0,
                       **({"cpu_cores": 1.25, "worker_cpu_cores": 0.5, "machine_cpu_cores": 1.875, "rss_bytes": 412_000_000, "worker_rss_bytes": 98_000_000,
                           "worker_read_bytes_per_second": 12_000_000, "written_bytes_per_second": 0} if step % 50 == 0 else {}),
                       "wall_time": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1.77e9 + step))}) + "\n"


def write_run(path, records, lr):
    checkpoint = f"checkpoints/step-{10 * records:09d}"
    for folder in ("metrics", "eval/artifacts", "logs", checkpoint):
        (path / folder).mkdir(parents=True)
    (path / checkpoint / "manifest.json").write_text(json.dumps(
        {"format": 2, "step": 10 * records, "epoch": 1, "next_ticket": 0, "created_at": "2026-01-05T08:45:36.000Z", "stoker_version": "0.1.0",
         "torch_version": "2.11.0", "world_size": 1, "model_digest": "", "config_digest": "", "data_digest": "", "parent_checkpoint": "", "metrics_bytes": 0,
         "live_settings": {}, "processor": "2 x Some CPU", "system": "Debian 12, Linux 6.1", "device": "cpu", "num_threads": 9, "files": [{"name": "model.safetensors", "bytes": 4815162, "sha256": "0" * 64}]}))
    (path / "metrics/train.jsonl").write_text(
        "".join(record(10 * i, 2 * math.exp(-i / records * 3) + 0.1 * math.sin(i * 12.9898) ** 2, lr) for i in range(1, records + 1)))
    (path / "config.yaml").write_text(f"run:\n  dir: {path}\noptimizer:\n  lr: {lr}\ntrain:\n  max_steps: {10 * records}\n")
    for i in range(1, 11):
        step = records * i
        (path / f"eval/step-{step:09d}.json").write_text(json.dumps(
            {"step": step, "manifest_sha256": "0" * 64, "duration_seconds": 1.0, "created_at": "2026-01-05T08:45:37.595Z", "cpu_cores": 0.5, "worker_cpu_cores": 0.25,
             "datasets": {"val": {"loss": 2.0 / i + lr, "accuracy": i / 11, "num_samples": 100, "per_class": CLASSES,
                                  "confusion_matrix": [[90 if k == m else k + m for k in range(12)] for m in range(12)]}}}))
    (path / f"eval/artifacts/step-{10 * records:09d}.val.misclassified.png").write_bytes(png(64))
    (path / f"eval/artifacts/step-{10 * records:09d}.val.generated.txt").write_text("generated " + ATTACK)
    (path / "logs/stokerd.log").write_text("2026-01-31T12:00:00.000Z info    daemon started pid=1 run_dir=\"" + ATTACK + "\"\n"
                                           "2026-01-31T12:00:00.500Z info    training started device=cpu num_threads=3 start_step=0\n"
                                           "2026-01-31T12:00:01.000Z warning sample error path=\"" + ATTACK + "\"\n")
    (path / "sample_errors.jsonl").write_text(json.dumps({"step": 7, "path": ATTACK}) + "\n")
    (path / "exit_status.json").write_text(json.dumps({"state": "finished", "step": 10 * records, "reason": "max_steps reached " + ATTACK, "exit_code": 0}))


# What a line or a file of another user's run can be: every type, fields of every type, names of properties that every object has.
HOSTILE = ["", "{}", "[]", "null", "true", "5", "1e999", '"x"', "{", "NaN", "[" * 2000, '{"__proto__":1}', '{"toString":1,"constructor":null,"hasOwnProperty":[]}', "\xff\x00",
           *(json.dumps({"time": t, "level": l, "event": e, "step": s, "path": s, "key": s, "a": v}) for t, l, e, s, v in
             ((5, "info", "x", {}, 1), (None, 3, "x", [], {"toString": 1}), ({}, [], {}, None, None), ("x", "constructor", "x", "x", [[]]), ("2026-01-02T03:04:05Z", "info", None, 1e300, ""))),
           json.dumps({"a": "x" * 300_000})]


def write_hostile_run(path, line):
    """A run whose files of JSON, and the last lines of whose other files, are `line`."""
    for folder in ("metrics", "eval", "logs", "checkpoints/step-000000001"):
        (path / folder).mkdir(parents=True)
    for name in ("config.yaml", "exit_status.json", "paused.json", "lineage.jsonl", "last_checkpoint.json", "data_schema.json", "metrics/table.json", "eval/best.json", "eval/step-000000001.json",
                 "checkpoints/step-000000001/manifest.json", "metrics/train.jsonl", "metrics/eval.jsonl", "sample_errors.jsonl", "setting_changes.jsonl"):
        (path / name).write_text(line + "\n", encoding="latin-1")
    for torn in ("", line[:len(line) // 2]):  # the last event is `line`, then also a part of one
        with open(path / "logs/stokerd.log", "a", encoding="latin-1") as file:
            file.write(line + "\n" + torn)


def check_hostile_runs(page, address, names):
    """Each run is listed, and each can be opened."""
    page.open(address)
    page.wait_for("document.querySelectorAll('main canvas').length >= 6")
    listed = page.evaluate("[...document.querySelectorAll('nav tbody button')].map(b => b.textContent)")
    check(sorted(listed) == sorted(names), f"listed: {listed}")
    for name in names:
        page.evaluate(f"[...document.querySelectorAll('nav tbody button')].find(b => b.textContent === {json.dumps(name)}).click()")
        # The first heading of a report of several runs is theirs.
        page.wait_for(f"[...document.querySelectorAll('h1')].at(-1).textContent === {json.dumps(name)}")
    check("annot be shown" not in page.evaluate("document.body.innerText"), "a part of a run is not shown")
    check(not page.problems(), page.problems())


def check_page(page, problems):
    check(not page.evaluate("window.attacked"), "a name of the run has run a script")
    check(page.evaluate("document.querySelectorAll('main img').length") == 1, "the artifacts are not shown")
    page.wait_for("document.querySelector('main img').complete && document.querySelector('main img').naturalWidth === 64")
    page.wait_for("document.body.innerText.includes('generated <img')")  # it is fetched separately
    text = page.evaluate("document.body.innerText")
    for part in ("Phases of a step", "Learning rate", "Evaluations", "Checkpoints", "4.82 MB", "Sample errors", "class with a long name 11",
                 "daemon started", "max_steps reached <img", "generated <img", "stoker 0.1.0, LibTorch 2.11.0; trained on cpu with 3 threads; 2 x Some CPU; Debian 12, Linux 6.1"):
        check(part in text, f"not shown: {part}")
    # Every chart has a name, and the arrow keys read its points.
    names = page.evaluate("[...document.querySelectorAll('main canvas')].map(c => c.getAttribute('aria-label'))")
    check(len(names) >= 6 and all(len(name) > 20 for name in names), names)
    check("train: " in names[0] and "at step" in names[0], names[0])
    # What was measured has a chart for each unit; what was not, and what is always 0, has none.
    use = {name.split(".")[0]: name for name in names}
    for title, parts, others in (("Processor", ("stokerd: 1.250 at step", "workers: 0.5000 at", "machine: 1.875 at", "evaluator: 0.7500 at"), ()),
                                 ("Memory", ("stokerd: 412 MB at step", "workers: 98.0 MB at"), ("evaluator", "device")),
                                 ("Disk and network", ("workers read: 12.0 MB at step",), ("stokerd written", "disks"))):
        check(all(part in use[title] for part in parts) and not any(other in use[title] for other in others), use[title])
    check("Device" not in use, names)
    page.evaluate("document.querySelector('main canvas').focus()")
    page.key("ArrowLeft")
    page.wait_for("/train, step [\\d\\s]+: /.test(document.getElementById('announcer').textContent)")
    page.key("ArrowDown")
    page.wait_for("/val, step [\\d\\s]+: /.test(document.getElementById('announcer').textContent)")
    check(page.evaluate("[...document.querySelectorAll('button, select, input')].every(e => e.tabIndex >= 0 && (e.textContent.trim() || e.getAttribute('aria-label')))"),
          "a control has no name")
    check(not page.problems(), page.problems())


def serve_status(run, **changes):
    """Answers as the stokerd of `run`, a group of three ranks, on its control socket."""
    info = run.stat()
    hello = {"protocol_version": 2, "stoker_version": "1", "role": "read", "methods": [], "run_dir": str(run), "run_dir_id": f"{info.st_dev}:{info.st_ino}", "pid": 1}
    status = {**hello, "state": "training", "step": 1234, "max_steps": 2000, "step_time_ms": 35.0,
              "feed": {"ready_batches": 3, "queue_capacity": 8, "workers": 2, "workers_reading": 1.5, "workers_waiting": 0.5, "data_wait_ms": 0.0006},
              "resources": {"rss_bytes": 412000000, "peak_rss_bytes": 430000000, "cpu_cores": 1.5, "worker_cpu_cores": 0.25, "machine_cpu_cores": 1.9},
              "group": {"world_size": 3, "restart_count": 1, "ranks": [{"compute_ms": c, "data_wait_ms": w, "optimizer_bytes": 9} for c, w in ((20.0, 1.0), (35.0, 14.0), (21.0, 2.0))]}, **changes}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(run / "control.sock"))
    listener.listen()

    def answer(client):
        with client, client.makefile("rw") as lines:
            for line in lines:
                request = json.loads(line)
                lines.write(json.dumps({"id": request["id"], "result": hello if request["method"] == "hello" else status}) + "\n")
                lines.flush()

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=[client], daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener


def expected_number(x, digits):
    """The rule of readable_format.h, from the exact value of a double."""
    if x == 0:
        return "0"
    exact = decimal.Decimal(x)
    rounded = exact.quantize(decimal.Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=decimal.ROUND_HALF_UP)
    exponent = rounded.adjusted()
    if exponent < -4 or exponent >= 7:
        return f"{rounded.scaleb(-exponent).quantize(decimal.Decimal(1).scaleb(1 - digits)):f}e{exponent}"
    decimals = max(0, digits - 1 - exponent)
    if decimals == 0:
        return f"{int(rounded):,}".replace(",", " ")
    return f"{exact.quantize(decimal.Decimal(1).scaleb(-decimals), rounding=decimal.ROUND_HALF_UP):f}"


def check_formats(page):
    """Numbers for people: the page writes them as the programs do (readable_format_test.cc), and both as Python computes."""
    table = pathlib.Path(__file__).parents[1] / "shared/base/readable_formats.tsv"
    rows = [line.split("\t") for line in table.read_text().splitlines() if not line.startswith("#")]
    check(len(rows) > 90, len(rows))
    for name, number, text in rows:
        digits = {"value": 4, "rate": 3}.get(name)
        check(digits is None or expected_number(float(number), digits) == text, f"{name} of {number} is not {text}")
    names = {"value": "format"}
    written = page.evaluate(f"{json.dumps([[names.get(name, name), float(number)] for name, number, _ in rows])}.map(([name, x]) => stokerPage.formats[name](x))")
    wrong = [(row, text) for row, text in zip(rows, written) if text.replace("\u202f", " ") != row[2]]
    check(not wrong, wrong)


def saved(page, label):
    """The text of the file that a button saves."""
    page.evaluate("URL.createObjectURL = blob => { window.saved = blob; return 'data:,'; }")
    page.evaluate(f"document.querySelector('[aria-label=\\'{label}\\']').click()")
    return page.evaluate("saved.text()")


def parameters(page):
    return urllib.parse.parse_qs(page.evaluate("location.hash.slice(1)"))


def check_charts(page, address):
    """Zoom, axes, smoothing, files, marks, and the link to a moment."""
    page.open(address + "#run=events")
    page.wait_for("document.querySelector('h1')?.textContent === 'events' && document.querySelectorAll('main canvas').length >= 6")
    marks = page.evaluate("document.querySelector('.marks').innerText")
    for part in ("restart at step 300", "rollback at step 500", "no records from step 600 to 800", "failed at step 1\u202f000"):
        check(part in marks, f"no mark: {part} in {marks}")
    check("rollback at step 500" in page.evaluate("document.querySelector('main canvas').getAttribute('aria-label')"), "marks are not read")
    rows = list(csv.reader(io.StringIO(saved(page, "Save the points of Loss as CSV"))))
    check(rows[0] == ["step", "train", "val"], rows[0])
    check([float(v) for v in rows[1][:2]] == [10, events_loss(10)], rows[1])
    check(len(rows) - 1 == len({*EVENTS_STEPS, *range(100, 1001, 100)}), len(rows))  # records and evaluations
    picture = xml.etree.ElementTree.fromstring(saved(page, "Save Loss as SVG"))
    paths = [path for path in picture.iter("{http://www.w3.org/2000/svg}path") if (path.get("d") or "").count("L") > 20]
    check(paths, "the picture has no curve")
    check(any(text.text == "train" for text in picture.iter("{http://www.w3.org/2000/svg}text")), "the picture has no legend")
    # A gap is not a line: the curve starts again.
    check(all((path.get("d") or "").count("M") == 2 for path in paths), [path.get("d") for path in paths])
    box = json.loads(page.evaluate("JSON.stringify(document.querySelector('main canvas').getBoundingClientRect())"))
    middle = box["y"] + box["height"] / 2
    page.drag((box["x"] + box["width"] * .4, middle), (box["x"] + box["width"] * .7, middle))
    page.wait_for("new URLSearchParams(location.hash.slice(1)).has('from')")
    zoomed = {key: int(parameters(page)[key][0]) for key in ("from", "to")}
    check(200 < zoomed["from"] < zoomed["to"] < 900, zoomed)
    steps = [float(row[0]) for row in csv.reader(io.StringIO(saved(page, "Save the points of Loss as CSV"))) if row[0] != "step"]
    check(min(steps) >= zoomed["from"] - 10 and max(steps) <= zoomed["to"] + 10, (zoomed, steps[0], steps[-1]))
    choose = "((label, value) => { const box = document.querySelector(`[aria-label='${label}']`); box.value = value; box.dispatchEvent(new Event('change')); })"
    page.evaluate(choose + "('Smoothing', '0.9')")
    page.evaluate(choose + "('Horizontal axis', 'wall')")
    moment = page.evaluate("location.href")
    check({key: value[0] for key, value in parameters(page).items()}.items() >= {"run": "events", "x": "wall", "smooth": "0.9"}.items(), parameters(page))
    page.open("about:blank")
    page.open(moment)
    page.wait_for("document.querySelectorAll('main canvas').length >= 6")
    check({key: int(parameters(page)[key][0]) for key in ("from", "to")} == zoomed, "the link shows another moment")
    check(page.evaluate("document.querySelector('[aria-label=\\'Horizontal axis\\']').value") == "wall", "the link has another axis")
    rows = list(csv.reader(io.StringIO(saved(page, "Save the points of Loss as CSV"))))
    check(rows[0][0] == "wall time (min)", rows[0])  # a step takes a second
    page.evaluate(choose + "('Horizontal axis', 'epoch')")
    check(saved(page, "Save the points of Loss as CSV").startswith("epoch,"), "no axis of epochs")
    page.evaluate("[...document.querySelectorAll('button')].find(b => b.textContent === 'show all').click()")
    check("from" not in parameters(page), parameters(page))
    check(not page.problems(), page.problems())
    # A part that cannot be read does not hide the others.
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source="{ const get = window.fetch; window.fetch = (url, ...more) => String(url).includes('/v1/curves') ? Promise.reject(new Error('unreadable')) : get(url, ...more); }")["identifier"]
    page.open("about:blank")
    page.open(address + "#run=events")
    page.wait_for("document.body?.innerText.includes('the curves cannot be read: unreadable') && document.body.innerText.includes('Evaluations')")
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    page.open("about:blank")


EVENTS_STEPS = [*range(10, 610, 10), *range(800, 1010, 10)]


def events_loss(step):
    return round(2 - step / 1000, 3)


def write_run_with_events(path):
    """A run that was restarted, rolled back and failed, and that lost records of a full disk."""
    write_run(path, 100, 0.1)
    (path / "metrics/train.jsonl").write_text("".join(record(step, events_loss(step)).replace('"epoch": 0', f'"epoch": {step // 200}').replace('"epoch": 1', f'"epoch": {step // 200}') for step in EVENTS_STEPS))
    (path / "logs/stokerd.log").write_text("2026-01-31T12:00:00.000Z info    run resumed step=300 checkpoint=x\n"
                                           "2026-01-31T12:00:00.000Z warning run rolled back step=500 attempt=1 max_attempts=3 lr_scale=0.5 reason=\"not finite\"\n")
    (path / "exit_status.json").write_text(json.dumps({"state": "failed", "step": 1000, "reason": "first line\nsecond line", "exit_code": 65}))


def check_many_runs(page, address, count):
    """A table, a picture of the settings and a chart of many runs, all drawn."""
    page.open(address)
    page.wait_for(f"document.querySelectorAll('nav tbody tr').length === {count}")
    words = "(word => { const box = document.querySelector('[aria-label^=\\'Filter the list\\']'); box.value = word; box.dispatchEvent(new Event('input')); })"
    page.evaluate(words + "('run-7')")
    check(page.evaluate("document.querySelectorAll('nav tbody tr').length") == 11, "not filtered")  # 7, 70 to 79
    page.evaluate(words + "('')")
    height = page.evaluate("document.querySelector('nav').offsetHeight")
    page.evaluate("[...document.querySelectorAll('nav button')].find(b => b.textContent === 'compare all').click()")
    page.wait_for(f"document.querySelectorAll('[aria-label=\\'Runs compared\\'] tbody tr').length === {count}")
    check(page.evaluate("document.querySelector('nav').offsetHeight") == height, "the list has moved")
    check(page.evaluate("document.querySelector('nav').nextSibling === null && document.querySelector('main').offsetHeight === 0"), "the run is between")
    check(page.evaluate("document.querySelectorAll('.parallel > path').length") == count, "parallel coordinates do not have all runs")
    lines = page.evaluate("Chart.getChart([...document.querySelectorAll('canvas')].find(c => c.getAttribute('aria-label').includes('of runs'))).data.datasets.map(d => d.borderColor)")
    check(len(lines) == count and len(set(lines)) == count, "runs share a color")
    page.evaluate("[...document.querySelectorAll('[aria-label=\\'Runs compared\\'] th button')][1].click()")
    times = [page.evaluate("(document.querySelector('[aria-label^=\\'Filter the runs by\\']').dispatchEvent(new Event('input')), stokerPage.redrawMs())") for _ in range(5)]
    print(f"{count} runs compared: a redraw takes {min(times):.0f} to {max(times):.0f} ms")
    check(not page.problems(), page.problems())


def check_comparison(page):
    """Two runs: best first, sorted by a column, filtered, and in the address."""
    table = "document.querySelector('[aria-label=\\'Runs compared\\']')"
    names = f"[...{table}.querySelectorAll('tbody button')].map(b => b.textContent)"
    values = f"[...{table}.querySelectorAll('tbody tr')].map(row => Number(row.children[3].textContent))"
    titles = page.evaluate(f"[...{table}.querySelectorAll('th')].map(t => t.textContent)")
    check(titles == ["run", "optimizer.lr", "train.max_steps", "val loss ↑", "step", "training time", "state"], titles)
    best = page.evaluate(values)
    check(best == [0.3, 0.4], best)  # loss 2 / 10 and the learning rate
    for expected in (["0.1", "0.2"], ["0.2", "0.1"]):
        page.evaluate(f"[...{table}.querySelectorAll('th button')][1].click()")
        check(page.evaluate(f"[...{table}.querySelectorAll('tbody tr')].map(row => row.children[1].textContent)") == expected, expected)
    filtered = "(word => { const box = document.querySelector('[aria-label^=\\'Filter the runs by\\']'); box.value = word; box.dispatchEvent(new Event('input')); })"
    page.evaluate(filtered + "('LR=0.2')")
    check(page.evaluate(names) == ["short"], "not filtered by a setting")
    check(parameters(page)["find"] == ["LR=0.2"], "the filter is not in the address")
    page.evaluate(filtered + "('')")
    check(sorted(page.evaluate(names)) == ["long", "short"], "the filter stays")
    check(page.evaluate("new URLSearchParams(location.hash.slice(1)).getAll('compare').length") == 2, page.evaluate("location.href"))
    address = page.evaluate("location.href")
    page.open("about:blank")
    page.open(address)
    page.wait_for(table + " !== null")
    page.open("about:blank")
    page.open(address.split("#")[0] + "#run=gone")
    page.wait_for("document.body?.innerText.includes('gone: there is no such run here')")
    page.open("about:blank")
    page.open(address)
    page.wait_for(table + " !== null")


def check_full_disk(page, address, run):
    """A run that can write no file: its stokerd alone knows, and the list and the header show it."""
    page.open(address)
    page.wait_for("document.querySelector('header.run .notice.bad')?.innerText.includes('degraded: No space left on device; 234 steps since the last checkpoint')")
    # The list asks with a limit of 0.3 s, every ten seconds.
    row = f"[...document.querySelectorAll('nav tbody tr')].find(row => row.innerText.includes('{run}'))"
    page.wait_for(f"['degraded', 'No space left'].every(part => {row}.innerText.includes(part))")
    check(page.evaluate(f"{row}.querySelector('.state.bad') !== null"), "degraded is not red")
    # The comparison has the state that stokerd says, too.
    page.evaluate("[...document.querySelectorAll('nav button')].find(b => b.textContent === 'compare all').click()")
    compared = f"[...document.querySelectorAll('[aria-label=\\'Runs compared\\'] tbody tr')].find(row => row.innerText.includes('{run}'))"
    page.wait_for(f"{compared}?.innerText.includes('degraded')")
    page.resize(390, 800, True)
    shown = page.evaluate("[...document.querySelectorAll('nav thead th')].filter(th => th.offsetWidth > 0).map(th => th.textContent)")
    check(shown == ["compare", "run", "state", "best"], shown)
    page.resize(1440, 1000)
    check(not page.problems(), page.problems())


def check_contrast():
    """WCAG AA in both themes: 4.5 of text, 3 of what shows a state or a control, from the colors of the style sheet."""
    style = (pathlib.Path(__file__).parents[2] / "shared/view/page/page.css").read_text()
    light = dict(re.findall(r"(--\w+): (#\w{6})", style.split("@media")[0]))
    dark = {**light, **dict(re.findall(r"(--\w+): (#\w{6})", style.split("@media")[1]))}
    check(light["--card"] != dark["--card"], "there is no dark theme")

    def luminance(color):
        values = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        return sum(weight * (v / 12.92 if v <= .03928 else ((v + .055) / 1.055) ** 2.4) for weight, v in zip((.2126, .7152, .0722), values))

    def contrast(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + .05) / (low + .05)

    for name, theme in (("light", light), ("dark", dark)):
        pairs = [(ink, ground, 4.5) for ink in ("--ink", "--soft", "--warn", "--bad") for ground in ("--card", "--back", "--faint")]
        pairs += [(line, ground, 3) for line in ("--edge", "--train", "--val", "--third", "--fourth", "--fifth", "--sixth", "--good") for ground in ("--card",)]
        pairs += [("--edge", ground, 3) for ground in ("--back", "--faint")]
        for front, ground, least in pairs:
            found = contrast(theme[front], theme[ground])
            check(found >= least, f"{name}: {front} on {ground}: {found:.2f}")
        cells = re.findall(r"\.[mx]\d \{ background: color-mix\(in srgb, var\((--\w+)\) (\d+)%, var\(--card\)\)", style)
        check(len(cells) == 8, cells)
        for color, percent in cells:
            mixed = "#" + "".join(f"{round((int(theme[color][i:i + 2], 16) * int(percent) + int(theme['--card'][i:i + 2], 16) * (100 - int(percent))) / 100):02x}" for i in (1, 3, 5))
            check(contrast(theme["--ink"], mixed) >= 4.5, f"{name}: cell {color} {percent} %: {contrast(theme['--ink'], mixed):.2f}")


def main():
    bin_folder = pathlib.Path(sys.argv[1])
    images = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    if not browser.find_chromium():
        print("SKIP: no chromium; Debian's package chromium has it")
        return 77
    work = pathlib.Path(tempfile.mkdtemp(prefix="stoker-page-"))
    servers = []
    server = page = None
    try:
        write_run(work / "runs/long", RECORDS, 0.1)
        write_run(work / "runs/short", 500, 0.2)
        os.utime(work / "runs/short/metrics/train.jsonl", (1, 1))
        server = subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "runs"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        address = server.stdout.readline().strip()
        page = browser.Browser()

        def image(name, *size):
            if images:
                page.resize(*size)
                time.sleep(1)
                page.screenshot(images / f"{name}.png")

        page.open(address)
        page.wait_for("document.querySelectorAll('main canvas').length >= 6")
        check_page(page, page.problems())
        print(f"{RECORDS} records drawn in {page.evaluate('stokerPage.drawMs()'):.0f} ms")
        check(all(url.startswith((address, "data:")) for url in page.requests()), page.requests())
        check(page.evaluate(f"fetch('{address}').then(a => a.text()).then(t => t.length)") < 400_000, "more than 400 kB")
        check_formats(page)
        check_contrast()

        # The ring, the memory and the ranks of a run whose stokerd answers.
        listener = serve_status(work / "runs/long")
        page.wait_for("document.body.innerText.includes('3 of 8 batches ready')")
        text = page.evaluate("document.querySelector('.now').innerText")
        for part in ("412 MB", "peak 430 MB", "reading 1.5", "waiting 0.5", "compute 35.0 ms", "slowest: rank 1", "data wait <0.01 ms", "35.0 ms/step (median 21.0), data wait 14.0 ms; 1 restart"):
            check(part in text, f"not shown: {part} in {text}")
        check(page.evaluate("document.querySelectorAll('.rank').length") == 3, "a rank has no bar")
        image("ranks", 1440, 1000)

        # What is appended to the run and to its log appears.
        with open(work / "runs/long/metrics/train.jsonl", "a") as file:
            file.write(record(10 * RECORDS + 10, 0.0123))
        with open(work / "runs/long/logs/stokerd.log", "a") as file:
            file.write("2026-01-31T12:00:02.000Z info    appended line\n")
        page.wait_for("document.body.innerText.includes('0.9878') && document.body.innerText.includes('appended line')")  # its accuracy

        # Two runs compared, with the setting that differs.
        for i in range(2):
            page.evaluate(f"document.querySelectorAll('nav input[type=checkbox]')[{i}].click()")
        page.wait_for("document.body.innerText.includes('settings that differ') && document.body.innerText.includes('optimizer.lr')")
        check_comparison(page)
        image("runs", 1440, 2200)
        page.dark()
        image("dark", 1440, 2200)
        page.dark(False)
        page.resize(360, 800, True)
        page.wait_for("document.documentElement.scrollWidth <= 360")
        image("narrow", 360, 2400, True)
        page.resize(1440, 1000)
        check(not page.problems(), page.problems())

        # The page of the first run of a directory; a newer one does not replace it.
        (work / "new").mkdir()
        servers.append(subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "new"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        # It reads the list of runs every ten seconds; here twenty times as often.
        page.call("Page.addScriptToEvaluateOnNewDocument", source="{ const set = window.setInterval; window.setInterval = (call, ms) => set(call, ms / 20); }")
        page.open(servers[-1].stdout.readline().strip())
        page.wait_for("document.body?.innerText.includes('No run yet')")
        write_run(work / "new/first", 50, 0.1)
        page.wait_for("document.querySelectorAll('main canvas').length >= 6")
        write_run(work / "new/second", 50, 0.1)
        page.wait_for("document.querySelectorAll('nav tbody tr').length === 2")
        with open(work / "new/first/metrics/train.jsonl", "a") as file:
            file.write(record(510, 0.0123))
        os.utime(work / "new/second/metrics/train.jsonl")
        page.wait_for("document.querySelector('header.run').innerText.includes('0.9878')")
        check(page.evaluate("document.querySelector('h1').textContent") == "first", "another run is shown")
        check(not page.problems(), page.problems())

        write_run(work / "full/run", 50, 0.1)
        write_run(work / "full/other", 50, 0.1)
        os.utime(work / "full/other/metrics/train.jsonl", (1, 1))  # the older one
        (work / "full/run/exit_status.json").unlink()
        lock = open(work / "full/run/LOCK", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        full = serve_status(work / "full/run", state="degraded", checkpoint={"last_saved_step": 1000, "failed_total": 3, "last_error": "No space left on device"})
        servers.append(subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "full"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        check_full_disk(page, servers[-1].stdout.readline().strip(), "run")
        full.close()
        lock.close()

        def serve(folder):
            servers.append(subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            return servers[-1].stdout.readline().strip()

        write_run_with_events(work / "charts/events")
        write_run(work / "charts/other", 50, 0.1)
        check_charts(page, serve(work / "charts"))
        image("charts", 1440, 1400)
        for i in range(200):
            write_run(work / f"many/run-{i}", 40, round(10 ** -(1 + i % 20 / 10), 6))
            config = work / f"many/run-{i}/config.yaml"
            config.write_text(config.read_text() + f"  micro_batch_size: {8 * (1 + i // 20)}\n")
        check_many_runs(page, serve(work / "many"), 200)
        image("many", 1440, 2200)

        # Runs of other users that contain anything, and one without files beside config.yaml.
        hostile = {f"hostile-{i}": line for i, line in enumerate(HOSTILE)}
        for name, line in hostile.items():
            write_hostile_run(work / "shared" / name, line)
        (work / "shared/bare").mkdir()
        (work / "shared/bare/config.yaml").write_text("")
        write_run(work / "shared/good", 50, 0.1)
        servers.append(subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "shared"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        names = [*hostile, "bare", "good"]
        check_hostile_runs(page, servers[-1].stdout.readline().strip(), names)
        all_runs = work / "all.html"
        subprocess.run([bin_folder / "stokerctl", "report", "--html", all_runs, *(work / "shared" / name for name in names)], check=True, stdout=subprocess.DEVNULL)
        check_hostile_runs(page, all_runs.as_uri(), names)

        # A report is one file that needs no server.
        report = work / "report.html"
        subprocess.run([bin_folder / "stokerctl", "report", "--html", report, work / "runs/long", work / "runs/short"], check=True, stdout=subprocess.DEVNULL)
        check(report.stat().st_size <= 5 << 20, "a report of more than 5 MiB")
        server.terminate()
        server.wait(60)
        page.close()
        page = browser.Browser()
        page.open(report.as_uri())
        page.wait_for("document.querySelectorAll('main canvas').length >= 6")
        check_page(page, page.problems())
        check("settings that differ" in page.evaluate("document.body.innerText"), "the comparison is missing")
        check(page.evaluate("[...document.querySelectorAll('section')].some(s => s.innerText.startsWith('Events') && s.innerText.includes('daemon started'))"),
              "the report has no events")
        check(all(url.startswith(("file:", "data:")) for url in page.requests()), page.requests())
        image("report", 1440, 2600)
        print(f"report of {report.stat().st_size} bytes drawn in {page.evaluate('stokerPage.drawMs()'):.0f} ms")
    finally:
        if page:
            page.close()
        for process in (server, *servers):
            if process and process.poll() is None:
                process.terminate()
                process.wait(60)
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
