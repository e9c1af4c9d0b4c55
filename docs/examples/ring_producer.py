#!/usr/bin/env python3
"""Fills the batches of a running stokerd from Python, without third-party packages.

    ring_producer.py RUN_DIR            feed.producers: external; fills each ticket with generated samples
    ring_producer.py RUN_DIR --plan     feed.producers: both; data.train of format text with one file: fills
                                        each ticket with the bytes that `stokerctl show-batch` reports

It requests the ring over the control socket and then follows docs/ring-layout.md. Atomic operations
come from libatomic, which is installed with the GCC runtime. To fill batches from your own source,
replace generated_samples(); everything else is the protocol of the ring.
"""
import argparse
import ctypes
import ctypes.util
import json
import mmap
import os
import platform
import random
import socket
import struct
import subprocess
import sys

FREE, CLAIMED, READY, REQUEUED = 1, 2, 3, 5
SEQ_CST = 5  # memory order
FUTEX_WAIT, FUTEX_WAKE = 0, 1
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[platform.machine()]
CODES = {1: "B", 2: "H", 3: "i", 4: "q", 7: "f", 8: "d", 9: "?", 10: "b", 11: "h"}  # format characters of struct

libc = ctypes.CDLL(None, use_errno=True)
atomic = ctypes.CDLL(ctypes.util.find_library("atomic") or "libatomic.so.1")
LOAD, ADD = {}, {}
for size, kind in ((4, ctypes.c_uint32), (8, ctypes.c_uint64)):
    LOAD[size], ADD[size] = atomic[f"__atomic_load_{size}"], atomic[f"__atomic_fetch_add_{size}"]
    LOAD[size].restype = ADD[size].restype = kind
COMPARE_EXCHANGE = atomic["__atomic_compare_exchange_8"]
COMPARE_EXCHANGE.restype = ctypes.c_bool


class Tensor:
    """One record of the tensor table."""

    def __init__(self, record):
        self.name = record[:32].rstrip(b"\0").decode()
        self.dtype, rank = struct.unpack_from("<II", record, 32)
        self.shape = struct.unpack_from(f"<{rank}q", record, 40)
        self.offset, self.row_bytes = struct.unpack_from("<QQ", record, 104)

    def pack(self, values):
        return struct.pack(f"<{len(values)}{CODES[self.dtype]}", *values)


class Ring:
    """The shared-memory segment and this process's row in it. Offsets: docs/ring-layout.md."""

    def __init__(self, fd, producer, generation):
        self.memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.generation, self.producer = generation, producer
        magic, version = struct.unpack_from("<8sI", self.memory, 0)
        if magic != b"STOKRING" or version != 2:
            raise SystemExit(f"not a ring of format 2: {magic!r}, version {version}")
        self.slots, self.batch, _, self.stride, self.first, self.end = struct.unpack_from("<6Q", self.memory, 24)
        (tensors,) = struct.unpack_from("<I", self.memory, 72)
        tensor_table, self.slot_table, rows, _, self.payload = struct.unpack_from("<5Q", self.memory, 88)
        self.row = rows + 64 * producer
        self.tensors = [Tensor(self.memory[at : at + 128]) for at in range(tensor_table, tensor_table + 128 * tensors, 128)]

    def load(self, at, size=8):
        return LOAD[size](ctypes.c_void_p(self.base + at), SEQ_CST)

    def add(self, at, value, size=8):
        number = ctypes.c_uint64(value) if size == 8 else ctypes.c_uint32(value)
        ADD[size](ctypes.c_void_p(self.base + at), number, SEQ_CST)

    def replace(self, ticket, old, new):
        expected = ctypes.c_uint64(old)
        at = ctypes.c_void_p(self.base + self.slot_table + 64 * (ticket % self.slots))
        return COMPARE_EXCHANGE(at, ctypes.byref(expected), ctypes.c_uint64(new), SEQ_CST, SEQ_CST)

    def word(self, ticket, phase):
        claim = self.generation << 12 | self.producer << 4 if phase == CLAIMED else 0
        return (ticket // self.slots % 2**32) << 32 | claim | phase

    def is_closed(self):
        return self.load(320, 4) == 1 or self.load(self.row) != self.generation << 32 | 1

    def try_claim(self):
        """Claims and returns the lowest available ticket, or None. EOFError: all are filled."""
        self.add(self.row + 40, 1)
        next_ticket = self.load(128)
        limit = min(next_ticket + self.slots, self.end)
        ready = 0
        for ticket in range(next_ticket, limit):
            for phase in (FREE, REQUEUED):
                if self.replace(ticket, self.word(ticket, phase), self.word(ticket, CLAIMED)):
                    return ticket
            ready += self.load(self.slot_table + 64 * (ticket % self.slots)) == self.word(ticket, READY)
        if limit == self.end and ready == limit - next_ticket:
            raise EOFError
        return None

    def claim(self):
        while not self.is_closed():
            self.add(196, 1, 4)
            epoch = self.load(192, 4)
            self.add(self.row + 12, 1, 4)
            ticket = self.try_claim()
            if ticket is None:
                wait = (ctypes.c_long * 2)(0, 100_000_000)
                libc.syscall(SYS_FUTEX, ctypes.c_void_p(self.base + 192), FUTEX_WAIT, epoch, wait, None, 0)
            self.add(self.row + 12, 2**32 - 1, 4)
            self.add(196, 2**32 - 1, 4)
            if ticket is not None:
                return ticket
        raise EOFError

    def fill(self, ticket, row, sample):
        """`sample`: the bytes of one row of each tensor, by name."""
        slot = self.payload + ticket % self.slots * self.stride
        for tensor in self.tensors:
            if len(sample[tensor.name]) != tensor.row_bytes:
                raise ValueError(f"{tensor.name}: {len(sample[tensor.name])} bytes, not {tensor.row_bytes}")
            at = slot + tensor.offset + row * tensor.row_bytes
            self.memory[at : at + tensor.row_bytes] = sample[tensor.name]
        self.add(self.row + 56, 1)  # the heartbeat

    def is_claimed(self, ticket):
        """Whether the ticket is still this producer's; otherwise its slot must not be written to."""
        return self.load(self.slot_table + 64 * (ticket % self.slots)) == self.word(ticket, CLAIMED)

    def publish(self, ticket):
        if not self.replace(ticket, self.word(ticket, CLAIMED), self.word(ticket, READY)):
            return False  # the claim was revoked; another producer fills the ticket
        self.add(self.row + 48, 1)
        if ticket == self.load(128):
            self.add(256, 1, 4)
            if self.load(260, 4) > 0:
                libc.syscall(SYS_FUTEX, ctypes.c_void_p(self.base + 256), FUTEX_WAKE, 2**31 - 1, None, None, 0)
        return True


def attach(socket_path):
    """Requests the ring from the daemon that listens on the socket."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(socket_path)
        control.sendall(b'{"id":1,"method":"attach"}\n')
        line, fds, _, _ = socket.recv_fds(control, 65536, 1)
        while not line.endswith(b"\n"):
            line += control.recv(65536) or b"\n"
    reply = json.loads(line)
    if "error" in reply:
        raise SystemExit(reply["error"]["message"])
    return Ring(fds[0], reply["result"]["producer"], reply["result"]["generation"])


def generated_samples(ring, ticket):
    """Generated samples, a function of the ticket only, because a ticket can be requeued."""
    generator = random.Random(ticket)
    for _ in range(ring.batch):
        label = generator.randrange(2)
        sample = {}
        for tensor in ring.tensors:
            count = 1
            for size in tensor.shape:
                count *= size
            if tensor.name == "label":
                sample[tensor.name] = tensor.pack([label] * count)
            else:
                sample[tensor.name] = tensor.pack([generator.gauss(label, 0.5) for _ in range(count)])
        yield sample


def planned_samples(ring, ticket, run_dir, stokerctl):
    """The samples that the run plans for the ticket, read from the files.

    Requires train.gradient_accumulation_steps 1.
    """
    command = [stokerctl, "--run-dir", run_dir, "--json", "show-batch", str(ticket + 1)]
    batch = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    (tokens,) = ring.tensors
    for sample in batch["samples"]:
        with open(sample["path"], "rb") as file:
            file.seek(sample["offset"])
            yield {tokens.name: file.read(tokens.row_bytes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--plan", action="store_true", help="the samples of the run's plan")
    parser.add_argument("--stokerctl", default="stokerctl")
    parser.add_argument("--socket", help="control socket (default: RUN_DIR/control.sock)")
    arguments = parser.parse_args()
    ring = attach(arguments.socket or os.path.join(arguments.run_dir, "control.sock"))
    filled = 0
    try:
        while True:
            ticket = ring.claim()
            samples = (
                planned_samples(ring, ticket, arguments.run_dir, arguments.stokerctl)
                if arguments.plan
                else generated_samples(ring, ticket)
            )
            for row, sample in enumerate(samples):
                ring.fill(ticket, row, sample)
            ring.publish(ticket)
            filled += 1
    except EOFError:
        print(f"filled {filled} batches", file=sys.stderr)


if __name__ == "__main__":
    main()
