#!/usr/bin/env python3
"""event_examples_test.py ROOT: runs the programs in docs/examples/events with recorded events, an SMTP
and an HTTP server of this test, and modules in place of mlflow and wandb that record their calls."""

import http.server
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading

EXAMPLES = pathlib.Path(sys.argv[1]) / "docs/examples/events"
EVENT = {"time": "2026-01-31T12:00:00.123Z", "level": "info", "event": "daemon exited",
         "state": "finished", "step": 20, "reason": "max_steps reached", "exit_code": 0}


class SmtpHandler(socketserver.StreamRequestHandler):
    mails = []

    def answer(self, text):
        self.wfile.write(text.encode() + b"\r\n")

    def handle(self):
        self.answer("220 test")
        for line in self.rfile:
            word = line.split()[0].upper()
            if word == b"DATA":
                self.answer("354 continue")
                mail = []
                while (text := self.rfile.readline()) != b".\r\n":
                    mail.append(text.decode())
                self.mails.append("".join(mail).replace("\r\n", "\n"))
            self.answer("221 bye" if word == b"QUIT" else "250 ok")


class HttpHandler(http.server.BaseHTTPRequestHandler):
    posts = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def run(name, event, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "-B", str(EXAMPLES / name), *arguments], input=json.dumps(event) + "\n",
        env={**os.environ, **environment}, text=True, check=True, timeout=60)


def expect(what, expected, found):
    if expected != found:
        sys.exit(f"{what}:\n  expected {expected}\n  found    {found}")


def test_mail(event):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SmtpHandler) as server:
        port = serve(server)
        run("mail.py", event, "a@example.org", "b@example.org", SMTP_SERVER=f"127.0.0.1:{port}")
        server.shutdown()
    (mail,) = SmtpHandler.mails
    for part in ("To: a@example.org, b@example.org\n", "Subject: daemon exited: ", "step: 20\n",
                 "reason: max_steps reached\n"):
        expect(f"{part!r} in {mail!r}", True, part in mail)


def test_webhook(event, folder):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HttpHandler) as server:
        port = serve(server)
        (folder / "url").write_text(f"http://127.0.0.1:{port}/hook/secret\n")
        run("webhook.py", event, str(folder / "url"))
        server.shutdown()
    text = f"{event['run_dir']}: daemon exited state=finished step=20 reason=max_steps reached exit_code=0"
    expect("request", [("/hook/secret", "application/json", {"text": text})], HttpHandler.posts)


FAKE_MODULES = {
    "mlflow/__init__.py": "",
    "mlflow/entities.py": "from collections import namedtuple\n"
                          "Metric = namedtuple('Metric', 'key value timestamp step')\n"
                          "Param = namedtuple('Param', 'key value')\n",
    "mlflow/tracking.py": """
import json, os, types
def record(*call):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
class MlflowClient:
    def __init__(self, tracking_uri): record("client", tracking_uri)
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): record("experiment", name); return "7"
    def create_run(self, experiment, run_name):
        record("run", experiment, run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
    def log_batch(self, run_id, metrics=(), params=()):
        record("batch", run_id, [[m.key, m.value, m.step] for m in metrics], [list(p) for p in params])
    def set_terminated(self, run_id, status): record("end", run_id, status)
    def update_run(self, run_id, status): record("status", run_id, status)
""",
    "wandb/__init__.py": """
import json, os
def record(*call):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(call) + "\\n")
def Settings(**fields): return fields
class Run:
    def save(self, path, policy): record("save", os.path.basename(path))
    def log(self, row, step): record("log", step, row)
    def finish(self, exit_code): record("finish", exit_code)
def init(**fields): record("init", fields["mode"], fields["project"], fields["id"]); return Run()
""",
}


def calls_of(file):
    calls = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    return calls


def add_records(run_dir, name, *records):
    (run_dir / "metrics").mkdir(exist_ok=True)
    with (run_dir / "metrics" / name).open("a") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


def test_mlflow(event, run_dir, environment, calls):
    arguments = ["http://localhost:5000", "study"]
    run("mlflow_log.py", {**event, "event": "daemon started"}, *arguments, **environment)
    expect("calls at the start",
           [["client", "http://localhost:5000"], ["experiment", "study"], ["run", "7", "demo run"],
            ["batch", "r1", [], [["train.max_steps", "20"], ["optimizer.lr", "0.01"]]],
            ["status", "r1", "RUNNING"]], calls_of(calls))
    add_records(run_dir, "train.jsonl", {"step": 10, "loss": 1.5, "wall_time": "now"})
    with (run_dir / "metrics/train.jsonl").open("a") as file:
        file.write('{"step": 20, "lo')  # not complete yet
    run("mlflow_log.py", {**event, "event": "checkpoint saved"}, *arguments, **environment)
    expect("calls after a checkpoint", ["batch", "r1", [["train/loss", 1.5, 10]], []],
           calls_of(calls)[1])
    with (run_dir / "metrics/train.jsonl").open("a") as file:
        file.write('ss": 1.25}\n')
    add_records(run_dir, "eval.jsonl", {"step": 20, "dataset": "val", "accuracy": 0.5})
    run("mlflow_log.py", event, *arguments, **environment)
    expect("calls at the end",
           [["batch", "r1", [["train/loss", 1.25, 20]], []],
            ["batch", "r1", [["val/accuracy", 0.5, 20]], []], ["end", "r1", "FINISHED"]],
           calls_of(calls)[1:])
    # A rollback has replaced step 20, by a longer line; then one has truncated the file to step 10.
    original = (run_dir / "metrics/train.jsonl").read_text()
    (run_dir / "metrics/train.jsonl").write_text(original.splitlines(keepends=True)[0])
    add_records(run_dir, "train.jsonl", {"step": 20, "loss": 1.0625, "wall_time": "later"}, {"step": 30, "loss": 0.5})
    run("mlflow_log.py", {**event, "event": "checkpoint saved"}, *arguments, **environment)
    expect("calls after a rollback", [["batch", "r1", [["train/loss", 0.5, 30]], []]], calls_of(calls)[1:])
    (run_dir / "metrics/train.jsonl").write_text(original.splitlines(keepends=True)[0])
    run("mlflow_log.py", {**event, "event": "checkpoint saved"}, *arguments, **environment)
    expect("calls after a truncation", [], calls_of(calls)[1:])
    (run_dir / "metrics/train.jsonl").write_text(original)


def test_wandb(event, environment, calls):
    run("wandb_log.py", event, "project", **environment)
    expect("calls",
           [["init", "offline", "project", "demo-run"], ["save", "config.yaml"],
            ["log", 10, {"train/loss": 1.5}], ["log", 20, {"train/loss": 1.25, "val/accuracy": 0.5}],
            ["finish", 0]], calls_of(calls))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run_dir = folder / "demo run"
        run_dir.mkdir()
        (run_dir / "config.yaml").write_text("train:\n  max_steps: 20\noptimizer:\n  lr: 0.01\n")
        for path, text in FAKE_MODULES.items():
            (folder / "modules" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "modules" / path).write_text(text)
        event = {**EVENT, "run_dir": str(run_dir)}
        calls = folder / "calls"
        environment = {"PYTHONPATH": str(folder / "modules"), "CALLS": str(calls)}
        test_mail(event)
        test_webhook(event, folder)
        test_mlflow(event, run_dir, environment, calls)
        test_wandb(event, environment, calls)


if __name__ == "__main__":
    main()
