#!/usr/bin/env python3
"""page_test.py BIN [--images DIR]: the page of stoker-web and a report of stokerctl in a headless Chromium.

BIN: the folder of the programs. The runs are written here. Skipped (exit code 77) without Chromium.
--images: also writes screenshots to DIR.
"""
import fcntl
import json
import math
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
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
            {"step": step, "manifest_sha256": "0" * 64, "duration_seconds": 1.0, "created_at": "2026-01-05T08:45:37.595Z",
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
    page.evaluate("document.querySelector('main canvas').focus()")
    page.key("ArrowLeft")
    page.wait_for("/step \\d+: /.test(document.getElementById('announcer').textContent)")
    check(page.evaluate("[...document.querySelectorAll('button, select, input')].every(e => e.tabIndex >= 0 && (e.textContent.trim() || e.getAttribute('aria-label')))"),
          "a control has no name")
    check(not page.problems(), page.problems())


def serve_status(run, **changes):
    """Answers as the stokerd of `run`, a group of three ranks, on its control socket."""
    info = run.stat()
    hello = {"protocol_version": 2, "stoker_version": "1", "role": "read", "methods": [], "run_dir": str(run), "run_dir_id": f"{info.st_dev}:{info.st_ino}", "pid": 1}
    status = {**hello, "state": "training", "step": 1234, "max_steps": 2000, "step_time_ms": 35.0,
              "feed": {"ready_batches": 3, "queue_capacity": 8, "workers": 2, "workers_reading": 1.5, "workers_waiting": 0.5, "data_wait_ms": 0.0006},
              "memory": {"rss_bytes": 412000000, "peak_rss_bytes": 430000000},
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


def check_comparison(page):
    """Two runs: best first, sorted by a column, filtered, and in the address."""
    table = "document.querySelector('[aria-label=\\'Runs compared\\']')"
    names = f"[...{table}.querySelectorAll('tbody button')].map(b => b.textContent)"
    values = f"[...{table}.querySelectorAll('tbody tr')].map(row => Number(row.children[3].textContent))"
    titles = page.evaluate(f"[...{table}.querySelectorAll('th')].map(t => t.textContent)")
    check(titles == ["run", "optimizer.lr", "train.max_steps", "val loss ↑", "step", "time", "state"], titles)
    best = page.evaluate(values)
    check(best == [0.3, 0.4], best)  # loss 2 / 10 and the learning rate
    for expected in (["0.1", "0.2"], ["0.2", "0.1"]):
        page.evaluate(f"[...{table}.querySelectorAll('th button')][1].click()")
        check(page.evaluate(f"[...{table}.querySelectorAll('tbody tr')].map(row => row.children[1].textContent)") == expected, expected)
    filtered = "(word => { const box = document.querySelector('input[type=search]'); box.value = word; box.dispatchEvent(new Event('input')); })"
    page.evaluate(filtered + "('LR=0.2')")
    check(page.evaluate(names) == ["short"], "not filtered by a setting")
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
    page.resize(390, 800, True)
    shown = page.evaluate("[...document.querySelectorAll('nav thead th')].filter(th => th.offsetWidth > 0).map(th => th.textContent)")
    check(shown == ["compare", "run", "state", "best"], shown)
    page.resize(1440, 1000)
    check(not page.problems(), page.problems())


def contrast(page):
    """Of text in the two colors of the page, as in WCAG."""
    return page.evaluate("""(() => {
      const luminance = c => { const [r, g, b] = c.match(/\\w\\w/g).map(x => { const v = parseInt(x, 16) / 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
        return .2126 * r + .7152 * g + .0722 * b; };
      const of = name => luminance(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
      return Math.min(...['--ink', '--soft', '--good', '--warn', '--bad'].map(n => { const [a, b] = [of(n), of('--card')].sort(); return (b + .05) / (a + .05); })); })()""")


def main():
    bin_folder = pathlib.Path(sys.argv[1])
    images = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    if not browser.find_chromium():
        print("SKIP: no chromium; Debian's package chromium has it")
        return 77
    work = pathlib.Path(tempfile.mkdtemp(prefix="stoker-page-"))
    server = other = third = fourth = page = None
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
        check(page.evaluate(f"fetch('{address}').then(a => a.text()).then(t => t.length)") < 1 << 20, "more than 1 MiB")
        check(contrast(page) >= 4.5, f"contrast {contrast(page)}")

        # The ring, the memory and the ranks of a run whose stokerd answers.
        listener = serve_status(work / "runs/long")
        page.wait_for("document.body.innerText.includes('3 of 8 batches ready')")
        text = page.evaluate("document.querySelector('.now').innerText")
        for part in ("412 MB", "peak 430 MB", "1.5 reading, 0.50 waiting", "slowest: rank 1", "data wait <0.01 ms", "35.0 ms/step (median 21.0), data wait 14.0 ms; 1 restart"):
            check(part in text, f"not shown: {part} in {text}")
        check(page.evaluate("document.querySelectorAll('.rank').length") == 3, "a rank has no bar")
        image("ranks", 1440, 1000)

        # What is appended to the run and to its log appears.
        with open(work / "runs/long/metrics/train.jsonl", "a") as file:
            file.write(record(10 * RECORDS + 10, 0.0123))
        with open(work / "runs/long/logs/stokerd.log", "a") as file:
            file.write("2026-01-31T12:00:02.000Z info    appended line\n")
        page.wait_for("document.body.innerText.includes('0.01230') && document.body.innerText.includes('appended line')")

        # Two runs compared, with the setting that differs.
        page.evaluate("document.querySelectorAll('nav input').forEach(box => box.click())")
        page.wait_for("document.body.innerText.includes('settings that differ') && document.body.innerText.includes('optimizer.lr')")
        check_comparison(page)
        image("runs", 1440, 2200)
        page.dark()
        check(contrast(page) >= 4.5, f"contrast in the dark {contrast(page)}")
        image("dark", 1440, 2200)
        page.dark(False)
        page.resize(360, 800, True)
        page.wait_for("document.documentElement.scrollWidth <= 360")
        image("narrow", 360, 2400, True)
        page.resize(1440, 1000)
        check(not page.problems(), page.problems())

        # The page of the first run of a directory; a newer one does not replace it.
        (work / "new").mkdir()
        other = subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "new"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # It reads the list of runs every ten seconds; here twenty times as often.
        page.call("Page.addScriptToEvaluateOnNewDocument", source="{ const set = window.setInterval; window.setInterval = (call, ms) => set(call, ms / 20); }")
        page.open(other.stdout.readline().strip())
        page.wait_for("document.body?.innerText.includes('No run yet')")
        write_run(work / "new/first", 50, 0.1)
        page.wait_for("document.querySelectorAll('main canvas').length >= 6")
        write_run(work / "new/second", 50, 0.1)
        page.wait_for("document.querySelectorAll('nav tbody tr').length === 2")
        with open(work / "new/first/metrics/train.jsonl", "a") as file:
            file.write(record(510, 0.0123))
        os.utime(work / "new/second/metrics/train.jsonl")
        page.wait_for("document.querySelector('main').innerText.includes('0.01230')")
        check(page.evaluate("document.querySelector('h1').textContent") == "first", "another run is shown")
        check(not page.problems(), page.problems())

        write_run(work / "full/run", 50, 0.1)
        write_run(work / "full/other", 50, 0.1)
        os.utime(work / "full/other/metrics/train.jsonl", (1, 1))  # the older one
        (work / "full/run/exit_status.json").unlink()
        lock = open(work / "full/run/LOCK", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        full = serve_status(work / "full/run", state="degraded", checkpoint={"last_saved_step": 1000, "failed_total": 3, "last_error": "No space left on device"})
        fourth = subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "full"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        check_full_disk(page, fourth.stdout.readline().strip(), "run")
        full.close()
        lock.close()

        # Runs of other users that contain anything, and one without files beside config.yaml.
        hostile = {f"hostile-{i}": line for i, line in enumerate(HOSTILE)}
        for name, line in hostile.items():
            write_hostile_run(work / "shared" / name, line)
        (work / "shared/bare").mkdir()
        (work / "shared/bare/config.yaml").write_text("")
        write_run(work / "shared/good", 50, 0.1)
        third = subprocess.Popen([bin_folder / "stoker-web", "--listen", "127.0.0.1:0", work / "shared"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        names = [*hostile, "bare", "good"]
        check_hostile_runs(page, third.stdout.readline().strip(), names)
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
        for process in (server, other, third, fourth):
            if process and process.poll() is None:
                process.terminate()
                process.wait(60)
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
