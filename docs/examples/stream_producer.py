#!/usr/bin/env python3
"""Sends records to a running stokerd with data.train.stream.source: external, without third-party packages.

    stream_producer.py RUN_DIR NAME FILE    sends the bytes of FILE, in the format of data.train
    stream_producer.py RUN_DIR NAME --generate 1000
                                            sends generated JSON lines, such as those of a simulator
    stream_producer.py RUN_DIR --end        ends the stream; start it when the producers have ended

A producer has a name. Its stream, all bytes that it has ever sent under this name, continues over
connections and over restarts of either side: stokerd replies with the offset from which to send. Both
sources here can therefore start anywhere. docs/streams.md describes the protocol.

Ends when stokerd has taken all, when it rejects the producer, and when the run has finished or failed. A run
that was stopped or killed can be resumed, so the producer waits for it.
"""
import argparse
import json
import os
import random
import socket
import sys
import time

FORMAT = 1
RETRY_SECONDS = 0.2


class Rejected(Exception):
    """stokerd does not accept the producer, and another attempt would not help."""


class RunEnded(Exception):
    """There will be no further attempt."""


def check_run(run_dir):
    """Raises RunEnded after the end of a run that is not resumed by itself."""
    try:
        with open(os.path.join(run_dir, "exit_status.json")) as file:  # absent while it runs, and after a kill
            status = json.load(file)
    except (OSError, ValueError):
        return
    if status["state"] != "stopped":
        raise RunEnded(f"the run has {status['state']}: {status['reason']}")


def connect(run_dir):
    """A path of more than 107 bytes is reached through a descriptor of its folder."""
    folder = os.open(run_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{folder}/producers.sock")
        return connection
    finally:
        os.close(folder)


def request(connection, line):
    """Sends the first line. Returns the reply, which comes when a reader is free."""
    connection.sendall(json.dumps(line).encode() + b"\n")
    return read_line(connection)


def read_line(connection):
    reply = b""
    while not reply.endswith(b"\n"):
        received = connection.recv(4096)
        if not received:
            raise ConnectionError("stokerd closed the connection")
        reply += received
    reply = json.loads(reply)
    if "error" in reply and not reply["retry"]:
        raise Rejected(reply["error"])
    if "error" in reply:
        raise ConnectionError(reply["error"])
    return reply


def until_done(run_dir, name, exchange):
    """Calls exchange(connection), with another connection after each failure, and returns its result."""
    reported = None
    while True:
        try:
            with connect(run_dir) as connection:
                return exchange(connection)
        except OSError as error:  # stokerd or its worker process ended, or has not started yet
            check_run(run_dir)
            if str(error) != reported:
                print(f"{name}: {error}; trying again", file=sys.stderr)
            reported = str(error)
            time.sleep(RETRY_SECONDS)


def send_until_end(run_dir, name, parts_from):
    """Sends all that parts_from(offset, records) yields."""

    def send(connection):
        reply = request(connection, {"format": FORMAT, "name": name})
        end = reply["offset"]
        for part in parts_from(reply["offset"], reply["records"]):
            connection.sendall(part)
            end += len(part)
        connection.shutdown(socket.SHUT_WR)
        # Without this line, stokerd or its worker process may not have read all. What it has taken after its
        # last checkpoint is lost if it is killed: then start this program again.
        return end - read_line(connection)["offset"]

    if (rest := until_done(run_dir, name, send)) > 0:
        print(f"{name}: the last {rest} bytes are no whole record", file=sys.stderr)


def file_from(path):
    def parts(offset, _records):
        with open(path, "rb") as file:
            file.seek(offset)
            while part := file.read(1 << 16):
                yield part

    return parts


def generated(name, count):
    """JSON lines that are a function of the name and their number, so that they can be sent again.

    With fields.priority: priority and queue: priority, samples with less noise are used first.
    """

    def parts(_offset, records):
        for number in range(records, count):
            generator = random.Random(f"{name} {number}")
            label = generator.randrange(4)
            noise = generator.gauss(0, 0.2)
            record = {"x": round(label + noise, 6), "y": label, "priority": round(1000 * abs(noise))}
            yield json.dumps(record).encode() + b"\n"

    return parts


def end_stream(run_dir):
    """Returns when all records are in the queue of stokerd."""
    until_done(run_dir, "end of the stream", lambda connection: request(connection, {"format": FORMAT, "end": True}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("name", nargs="?")
    parser.add_argument("file", nargs="?")
    parser.add_argument("--generate", type=int, metavar="RECORDS")
    parser.add_argument("--end", action="store_true", help="end the stream")
    arguments = parser.parse_args()
    try:
        if arguments.end:
            return end_stream(arguments.run_dir)
        if not arguments.name or (arguments.file is None) == (arguments.generate is None):
            parser.error("expected NAME and either FILE or --generate")
        parts = file_from(arguments.file) if arguments.file else generated(arguments.name, arguments.generate)
        send_until_end(arguments.run_dir, arguments.name, parts)
    except RunEnded as end:
        print(f"stream_producer.py: {end}", file=sys.stderr)
    except (OSError, Rejected) as error:
        raise SystemExit(f"stream_producer.py: {error}") from None


if __name__ == "__main__":
    main()
