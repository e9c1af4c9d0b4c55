#!/usr/bin/env python3
"""Sends records to a running stokerd with data.train.stream.source: external, without third-party packages.

    stream_producer.py RUN_DIR NAME FILE    sends the bytes of FILE, in the format of data.train
    stream_producer.py RUN_DIR NAME --generate 1000
                                            sends generated JSON lines, such as those of a simulator
    stream_producer.py RUN_DIR --end        ends the stream, after the producers that are connected

A producer has a name. Its stream, all bytes that it has ever sent under this name, continues over
connections and over restarts of either side: stokerd replies with the offset from which to send. Both
sources here can therefore start anywhere. docs/streams.md describes the protocol.
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
    reply = b""
    while not reply.endswith(b"\n"):
        received = connection.recv(4096)
        if not received:
            raise ConnectionError("the connection was closed without a reply")
        reply += received
    reply = json.loads(reply)
    if "error" in reply and not reply["retry"]:
        raise Rejected(reply["error"])
    if "error" in reply:
        raise ConnectionError(reply["error"])
    return reply


def send_until_end(run_dir, name, parts_from):
    """Sends all that parts_from(offset, records) yields, and connects again after each failure."""
    while True:
        try:
            with connect(run_dir) as connection:
                reply = request(connection, {"format": FORMAT, "name": name})
                for part in parts_from(reply["offset"], reply["records"]):
                    connection.sendall(part)
                # stokerd closes the connection when it has read all. What it has read after its last
                # checkpoint is lost if it is killed: then start this program again.
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
        except OSError as error:  # stokerd or its worker process ended, or has not started yet
            print(f"{name}: {error}; trying again", file=sys.stderr)
            time.sleep(RETRY_SECONDS)
        else:
            return


def file_from(path):
    def parts(offset, _records):
        with open(path, "rb") as file:
            file.seek(offset)
            while part := file.read(1 << 16):
                yield part

    return parts


def generated(name, count):
    """JSON lines that are a function of the name and their number, so that they can be sent again."""

    def parts(_offset, records):
        for number in range(records, count):
            generator = random.Random(f"{name} {number}")
            label = generator.randrange(4)
            yield json.dumps({"x": round(label + generator.gauss(0, 0.2), 6), "y": label}).encode() + b"\n"

    return parts


def end_stream(run_dir):
    with connect(run_dir) as connection:
        request(connection, {"format": FORMAT, "end": True})


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
    except (OSError, Rejected) as error:
        raise SystemExit(f"stream_producer.py: {error}") from None


if __name__ == "__main__":
    main()
