"""Differential test of the queues against TensorFlow's.

queue_differential.py TOOL [--schedules N] [--seed S] [--record FOLDER]

Generates random schedules of operations in named threads. Each operation is performed by
stoker-queue-script (TOOL) and by TensorFlow, in threads on both sides, and all outcomes are
compared: values, error codes, which operations wait, and the size after each step. With --record,
the schedules are written to FOLDER with their outcomes, for queue_script_test.

Schedules avoid the documented deviations: see `may_cancel` and `random_operation`.

Whether a thread of TensorFlow waits in the queue is guessed from its state in the kernel. A schedule that differs after
such a guess is therefore run again, and counts only if it differs each time. It counts immediately if it differs before
the first guess, or if stoker-queue-script, where nothing is guessed, has other outcomes when it is run again.
"""

import argparse
import json
import os
import queue as python_queue
import random
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf
from tensorflow.python.eager import cancellation, context, execute

DTYPES = {"I64": tf.int64, "I32": tf.int32, "F32": tf.float32, "F64": tf.float64, "U8": tf.uint8, "BOOL": tf.bool}
CODES = {
    tf.errors.CancelledError: "CANCELLED",
    tf.errors.OutOfRangeError: "OUT_OF_RANGE",
    tf.errors.InvalidArgumentError: "INVALID_ARGUMENT",
}
POLL_SECONDS = 0.005
TIMEOUT_SECONDS = 30
ATTEMPTS = 3  # of a schedule that differs after a guess


class Stoker:
    """stoker-queue-script, with an answer after each step."""

    def __init__(self, tool):
        self.process = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.transcript = []
        self.operations = 0

    def send(self, operation):
        self.operations += 1
        line = json.dumps(operation)
        self.transcript.append(line)
        self.process.stdin.write(line + "\n")
        return self.operations

    def step(self, operation, queue):
        """Performs it; returns its id, the outcomes by id, and the size of the queue."""
        number = self.send(operation)
        self.send({"op": "wait_idle"})
        size_number = self.send({"op": "size", "queue": queue})
        self.process.stdin.flush()
        outcomes = {}
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit("stoker-queue-script ended early")
            outcome = json.loads(line)
            outcome.pop("message", None)
            self.transcript.append(json.dumps(outcome))
            if outcome["id"] == size_number:
                return number, outcomes, outcome["value"]
            outcomes[outcome["id"]] = outcome

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Operation:
    def __init__(self, fields):
        self.fields = fields
        self.cancellation = cancellation.CancellationManager()
        self.started = threading.Event()
        self.done = threading.Event()
        self.outcome = None
        self.thread = None


def wait_until_blocked(operation):
    """Returns True when its thread sleeps, False when it has completed. This thread does not hold the GIL meanwhile,
    so it sleeps in the queue."""
    assert operation.started.wait(TIMEOUT_SECONDS)
    before = None
    while not operation.done.is_set():
        with open(f"/proc/self/task/{operation.thread.native_id}/status", encoding="ascii") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        sleeps = status["voluntary_ctxt_switches"] if status["State"].startswith("S") else None
        if sleeps is not None and sleeps == before:
            return True
        before = sleeps
        time.sleep(POLL_SECONDS)
    return False


class TensorFlow:
    """The same operations on one of TensorFlow's queues."""

    def __init__(self, make):
        arguments = {"capacity": make["capacity"], "shapes": make.get("shapes")}
        dtypes = [DTYPES[name] for name in make["dtypes"]]
        kind = make["type"]
        if kind == "PriorityQueue":
            self.queue = tf.compat.v1.PriorityQueue(types=dtypes, **arguments)
            dtypes = [tf.int64] + dtypes
        elif kind == "RandomShuffleQueue":
            self.queue = tf.compat.v1.RandomShuffleQueue(
                min_after_dequeue=make["min_after_dequeue"], seed=make["seed"], dtypes=dtypes, **arguments
            )
        else:
            self.queue = getattr(tf.compat.v1, kind)(dtypes=dtypes, **arguments)
        self.dtypes = dtypes
        self.threads = {}
        # TensorFlow identifies a waiting operation by the address of its cancellation manager, also after it was
        # cancelled. An address must not be used again.
        self.operations = []

    def submit(self, fields):
        operation = Operation(fields)
        self.operations.append(operation)
        name = fields["at"]
        if name not in self.threads:
            work = python_queue.SimpleQueue()
            thread = threading.Thread(target=self.run_thread, args=(work,), daemon=True)
            thread.start()
            self.threads[name] = (thread, work)
        operation.thread, work = self.threads[name]
        work.put(operation)
        return operation

    def run_thread(self, work):
        while (operation := work.get()) is not None:
            operation.started.set()
            try:
                value = self.perform(operation)
                operation.outcome = {"ok": True} if value is None else {"value": value}
            except tuple(CODES) as error:
                operation.outcome = {"error": CODES[type(error)]}
            except (ValueError, TypeError):
                operation.outcome = {"error": "INVALID_ARGUMENT"}
            except Exception as error:  # pylint: disable=broad-except
                operation.outcome = {"error": repr(error)}
            operation.done.set()

    def execute(self, operation, name, outputs, inputs, attributes):
        return execute.execute_with_cancellation(
            name, outputs, [self.queue.queue_ref] + inputs, attributes, context.context(), operation.cancellation
        )

    def perform(self, operation):
        fields = operation.fields
        op = fields["op"]
        if op in ("enqueue", "enqueue_many"):
            names = fields.get("dtypes")
            shapes = fields.get("shapes")
            tensors = []
            for i, value in enumerate(fields["value"]):
                dtype = DTYPES[names[i]] if names else self.dtypes[i] if i < len(self.dtypes) else tf.int64
                tensors.append(tf.constant(value, dtype=dtype, shape=shapes[i] if shapes else None))
            types = tuple(tensor.dtype.as_datatype_enum for tensor in tensors)
            kernel = "QueueEnqueueV2" if op == "enqueue" else "QueueEnqueueManyV2"
            self.execute(operation, kernel, 0, tensors, ("Tcomponents", types, "timeout_ms", -1))
            return None
        types = tuple(dtype.as_datatype_enum for dtype in self.dtypes)
        if op == "close":
            cancel = fields["cancel_pending_enqueues"]
            self.execute(operation, "QueueCloseV2", 0, [], ("cancel_pending_enqueues", cancel))
            return None
        if op == "is_closed":
            return bool(self.execute(operation, "QueueIsClosedV2", 1, [], ())[0].numpy())
        inputs = [] if op == "dequeue" else [tf.constant(fields["n"], tf.int32)]
        kernel = {
            "dequeue": "QueueDequeueV2",
            "dequeue_many": "QueueDequeueManyV2",
            "dequeue_up_to": "QueueDequeueUpToV2",
        }[op]
        attributes = ("component_types", types, "timeout_ms", -1)
        outputs = self.execute(operation, kernel, len(types), inputs, attributes)
        return [output.numpy().tolist() for output in outputs]

    def size(self):
        return int(self.queue.size().numpy())

    def close(self, operations):
        for operation in operations:
            operation.cancellation.start_cancel()
        for _, work in self.threads.values():
            work.put(None)


class Schedule:
    """One random schedule, performed by both sides."""

    def __init__(self, tool, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.tool = tool
        self.next_value = 1
        self.make = self.random_make()
        self.priority = self.make["type"] == "PriorityQueue"
        self.waiting = {}  # id to Operation, in the order of arrival
        self.has_guessed = False  # that an operation of TensorFlow waits
        self.transcript = []

    def random_make(self):
        r = self.random
        kind = r.choice(["FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue", "PriorityQueue"])
        make = {"op": "make", "queue": "q", "type": kind, "capacity": r.choice([1, 2, 3, 5, -1])}
        dtypes, shapes = r.choice(
            [(["I64"], [[]]), (["I64", "F32"], [[], [2]]), (["U8", "I32", "BOOL"], [[3], [], []])]
        )
        if kind == "PaddingFIFOQueue":
            dtypes, shapes = r.choice(
                [(["I64"], [[None]]), (["I64", "F32"], [[], [None, 2]]), (["I32"], [[None, None]]), (["I64"], [[2]])]
            )
        make["dtypes"] = dtypes
        # TensorFlow cannot create a PriorityQueue without shapes.
        if kind in ("PaddingFIFOQueue", "PriorityQueue") or r.random() < 0.85:
            make["shapes"] = shapes
        self.shapes = shapes
        if kind == "RandomShuffleQueue":
            limit = 4 if make["capacity"] < 0 else make["capacity"]
            make["min_after_dequeue"] = r.randrange(limit)
            make["seed"] = r.randrange(1000)
        return make

    def random_array(self, shape, number):
        if not shape:
            return number
        return [self.random_array(shape[1:], number) for _ in range(shape[0])]

    def component(self, dtype, shape, number):
        """A value that identifies the element, of the dtype and shape."""
        if dtype == "BOOL":
            number = number % 2 == 1
        elif dtype == "U8":
            number %= 256
        return self.random_array(shape, number)

    def element(self, shapes):
        # Elements of equal priority are equal: TensorFlow does not define their order.
        number = self.random.randrange(6) if self.priority else self.next_value
        self.next_value += 1
        values = [self.component(d, s, number) for d, s in zip(self.make["dtypes"], shapes)]
        return [number] + values if self.priority else values

    def concrete_shapes(self, smallest=0):
        extent = self.random.randrange
        return [[extent(smallest, 4) if e is None else e for e in shape] for shape in self.shapes]

    def invalid_operation(self):
        r = self.random
        value = self.element(self.concrete_shapes())
        dtypes = (["I64"] if self.priority else []) + self.make["dtypes"]
        choice = r.randrange(5)
        if choice == 0:
            return {"op": "enqueue", "value": value + [1]}
        if choice == 1:
            return {"op": "enqueue", "value": value, "dtypes": ["F64"] * len(value)}
        if choice == 2:
            return {"op": r.choice(["dequeue_many", "dequeue_up_to"]), "n": -1}
        if choice == 3:
            if len(value) == 1:
                return {"op": "enqueue", "value": [[[[1]]]], "dtypes": dtypes}
            return {"op": "enqueue_many", "value": [[v] * (2 + (i == 0)) for i, v in enumerate(value)]}
        return {"op": "enqueue", "value": []} if r.random() < 0.5 else {"op": "dequeue_many", "n": -7}

    def random_operation(self):
        r = self.random
        op = r.choices(
            ["enqueue", "enqueue_many", "dequeue", "dequeue_many", "dequeue_up_to", "close", "is_closed", "invalid"],
            [30, 18, 22, 14, 8, 4, 2, 4],
        )[0]
        if op == "invalid":
            return self.invalid_operation()
        if op == "enqueue":
            return {"op": op, "value": self.element(self.concrete_shapes())}
        if op == "enqueue_many":
            # TensorFlow crashes when it slices a batch of elements without a value.
            shapes = self.concrete_shapes(smallest=1)
            elements = [self.element(shapes) for _ in range(r.randrange(7))]
            if not elements:
                shapes = ([[]] if self.priority else []) + shapes
                return {"op": op, "value": [[] for _ in shapes], "shapes": [[0] + s for s in shapes]}
            return {"op": op, "value": [list(column) for column in zip(*elements)]}
        if op in ("dequeue_many", "dequeue_up_to"):
            n = r.randrange(7)
            if self.priority:
                # Deviations: n above capacity, and the rest of a closed queue.
                op = "dequeue_many"
                if self.make["capacity"] > 0:
                    n = min(n, self.make["capacity"])
            return {"op": op, "n": n}
        if op == "close":
            return {"op": op, "cancel_pending_enqueues": r.random() < 0.5}
        return {"op": op}

    def may_cancel(self, number):
        """Not a batch that can be partial: its elements would return to the queue. Not a close."""
        op = self.waiting[number].fields["op"]
        if op == "close":
            return False
        if op not in ("dequeue_many", "dequeue_up_to") or self.priority:
            return True
        first = next(n for n, o in self.waiting.items() if o.fields["op"].startswith("dequeue"))
        return number != first

    def run(self, steps):
        """Fills the transcript; raises AssertionError with it on a difference."""
        stoker = Stoker(self.tool)
        self.transcript = stoker.transcript
        stoker.send(self.make)
        reference = TensorFlow(self.make)
        try:
            for _ in range(steps):
                self.run_step(stoker, reference)
            self.check_waiting()
        except AssertionError as difference:
            text = "\n".join(stoker.transcript)
            raise AssertionError(f"schedule {self.seed}: {difference}\n{text}") from None
        finally:
            reference.close(self.waiting.values())
            stoker.close()

    def run_step(self, stoker, reference):
        r = self.random
        busy = {operation.fields["at"] for operation in self.waiting.values()}
        free = [name for name in ("t1", "t2", "t3", "t4", "t5") if name not in busy]
        cancellable = [number for number in self.waiting if self.may_cancel(number)]
        if cancellable and (not free or r.random() < 0.08):
            operation = self.waiting[r.choice(cancellable)]
            _, outcomes, size = stoker.step({"op": "cancel", "at": operation.fields["at"]}, "q")
            operation.cancellation.start_cancel()
        else:
            if free:
                fields = {"at": r.choice(free), "queue": "q", **self.random_operation()}
            else:
                fields = {"at": "t6", "queue": "q", "op": "close", "cancel_pending_enqueues": True}
            number, outcomes, size = stoker.step(fields, "q")
            self.waiting[number] = reference.submit(fields)
        for number, outcome in outcomes.items():
            if outcome.get("blocked"):
                continue
            operation = self.waiting.pop(number)
            assert operation.done.wait(TIMEOUT_SECONDS), f"TensorFlow waits in {operation.fields}"
            actual = {key: outcome[key] for key in ("ok", "value", "error") if key in outcome}
            assert actual == operation.outcome, f"{operation.fields}: {actual}; TensorFlow: {operation.outcome}"
        self.check_waiting()
        assert size == reference.size(), f"size is {size}; TensorFlow: {reference.size()}"

    def check_waiting(self):
        for operation in self.waiting.values():
            self.has_guessed = wait_until_blocked(operation) or self.has_guessed
            assert not operation.done.is_set(), f"TensorFlow completed {operation.fields}: {operation.outcome}"


def run_schedule(tool, seed):
    """Returns the schedule and its transcript; raises AssertionError if it differs."""
    before = []  # the transcript of the attempt before
    for attempt in range(1, ATTEMPTS + 1):
        schedule = Schedule(tool, seed)
        difference = None
        try:
            schedule.run(steps=10 + seed % 20)
        except AssertionError as error:
            difference = error
        common = min(len(before), len(schedule.transcript))
        if schedule.transcript[:common] != before[:common]:
            text = "\n".join(schedule.transcript)
            raise AssertionError(f"schedule {seed}: two runs of stoker-queue-script differ:\n{text}") from difference
        if difference is None:
            return schedule, schedule.transcript
        if attempt == ATTEMPTS or not schedule.has_guessed:
            raise difference
        print(f"runs again: {difference}", file=sys.stderr)
        before = schedule.transcript


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record")
    arguments = parser.parse_args()
    failures = 0
    for seed in range(arguments.seed, arguments.seed + arguments.schedules):
        try:
            schedule, transcript = run_schedule(arguments.tool, seed)
        except AssertionError as difference:
            print(difference, file=sys.stderr)
            failures += 1
            continue
        if arguments.record:
            name = f"{schedule.make['type']}-{seed}.jsonl"
            with open(os.path.join(arguments.record, name), "w", encoding="utf-8") as file:
                file.write("\n".join(transcript) + "\n")
    print(f"{arguments.schedules} schedules with TensorFlow {tf.__version__}, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
