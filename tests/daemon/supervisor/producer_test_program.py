#!/usr/bin/env python3
"""The same as producer_test_program.cc, with docs/examples/ring_producer.py.

Usage: producer_test_program.py EXAMPLES RUN_DIR [hold]
"""
import ctypes
import os
import signal
import sys
import time

sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import ring_producer  # noqa: E402


def fill_rows(ring, ticket, first, end):
    for row in range(first, end):
        sample = {}
        for tensor in ring.tensors:
            start = ticket * 31 + (tensor.offset + row * tensor.row_bytes) * 7
            sample[tensor.name] = bytes((start + i * 7) & 0xFF for i in range(tensor.row_bytes))
        ring.fill(ticket, row, sample)


def fill_tickets(ring, holds):
    """Until the ring is closed (True) or has ended (False)."""
    while True:
        try:
            ticket = ring.claim()
        except EOFError:
            return ring.is_closed()
        fill_rows(ring, ticket, 0, ring.batch // 2)
        if holds:
            os.kill(os.getpid(), signal.SIGSTOP)
        if ring.is_claimed(ticket):
            fill_rows(ring, ticket, ring.batch // 2, ring.batch)
        if not ring.publish(ticket) and holds:
            sys.exit(3 if ring.is_closed() else 1)
        holds = False


def main():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    holds = sys.argv[3:] == ["hold"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            ring = ring_producer.attach(os.path.join(sys.argv[2], "control.sock"))
        except SystemExit:  # between two rings
            time.sleep(0.02)
            continue
        if not fill_tickets(ring, holds):
            return
        holds = False
    sys.exit(1)


main()
