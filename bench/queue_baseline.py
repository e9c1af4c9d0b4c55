"""The baselines of stoker-bench's queue benchmark: the same pairs of enqueue and dequeue in another library.

  queue_baseline.py LIBRARY     tensorflow: FIFOQueue, called from Python; tensorflow-graph: in loops inside its graph;
                                python: queue.Queue

Prints 1 when it is ready. Then, for each line on standard input, "THREADS SECONDS BYTES", passes elements for about that
long and prints pairs per second: THREADS producers and as many consumers, or one thread that does both if it is 0;
elements are scalars if BYTES is 0, else arrays of that size that the producer copies. Exits at the end of its input.
"""
import os
import queue
import sys
import threading
import time
import warnings

CAPACITY = 64
WARM_UP = 200  # elements a thread


def run_loops(loops, number):
    """Runs loops of `number` operations in one thread each. Returns the seconds until all have ended."""
    threads = [threading.Thread(target=loop, args=(number,)) for loop in loops]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def pairs_per_second(threads, seconds, pair, put, get):
    """`pair`, `put` and `get` are loops: functions of the number of operations."""
    loops = [put] * threads + [get] * threads if threads else [pair]
    speed = WARM_UP / run_loops(loops, WARM_UP)
    number = max(WARM_UP, int(speed * seconds))
    return number * max(threads, 1) / run_loops(loops, number)


def call_rate(threads, seconds, put, get):
    """The same for functions that are called from Python."""
    def pair_loop(number):
        for _ in range(number):
            put()
            get()

    def put_loop(number):
        for _ in range(number):
            put()

    def get_loop(number):
        for _ in range(number):
            get()

    return pairs_per_second(threads, seconds, pair_loop, put_loop, get_loop)


def python_rate(threads, seconds, size):
    elements = queue.Queue(maxsize=CAPACITY)
    source = bytes(size)
    put = (lambda: elements.put(bytearray(source))) if size else (lambda: elements.put(1))
    return call_rate(threads, seconds, put, elements.get)


def import_tensorflow():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    warnings.filterwarnings("ignore")
    import tensorflow
    tensorflow.compat.v1.disable_eager_execution()
    return tensorflow.compat.v1


def tensorflow_rate(tf):
    import numpy

    def rate(threads, seconds, size):
        with tf.Graph().as_default(), tf.Session() as session:
            value = tf.placeholder(tf.uint8 if size else tf.int64, [size] if size else [])
            fifo = tf.FIFOQueue(CAPACITY, [value.dtype], [value.shape])
            element = numpy.zeros(size, numpy.uint8) if size else 1
            enqueue = session.make_callable(fifo.enqueue([value]), [value])
            dequeue = session.make_callable(fifo.dequeue().op)
            return call_rate(threads, seconds, lambda: enqueue(element), dequeue)

    return rate


def tensorflow_graph_rate(tf):
    def rate(threads, seconds, size):
        with tf.Graph().as_default(), tf.Session() as session:
            value = tf.zeros([size], tf.uint8) if size else tf.constant(1, tf.int64)
            fifo = tf.FIFOQueue(CAPACITY, [value.dtype], [value.shape])
            count = tf.placeholder(tf.int64, [])

            def pair():
                with tf.control_dependencies([fifo.enqueue([value])]):
                    return fifo.dequeue().op

            def loop(operation):
                def body(i):
                    with tf.control_dependencies([operation()]):
                        return i + 1

                last = tf.while_loop(lambda i: i < count, body, [tf.constant(0, tf.int64)], parallel_iterations=1)
                return session.make_callable(last, [count])

            return pairs_per_second(threads, seconds, loop(pair), loop(lambda: fifo.enqueue([value])),
                                    loop(lambda: fifo.dequeue().op))

    return rate


def main():
    library = sys.argv[1]
    if library == "python":
        rate = python_rate
    else:
        tf = import_tensorflow()
        rate = {"tensorflow": tensorflow_rate, "tensorflow-graph": tensorflow_graph_rate}[library](tf)
    print(1, flush=True)
    for line in sys.stdin:
        threads, seconds, size = line.split()
        print(rate(int(threads), float(seconds), int(size)), flush=True)


main()
