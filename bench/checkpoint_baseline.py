"""The baselines of stoker-bench's checkpoint benchmarks: saves the same state with common PyTorch libraries.

Prints the size of the state in bytes. Then, for each line on standard input, which is a new folder, saves the state
there and prints the duration in seconds: `durable` until all files are synced, `blocked` until the caller can continue.
Exits at the end of standard input.
"""
import argparse
import os
import shutil
import sys
import time
import warnings

TENSOR_BYTES = 4 << 20


def pieces(size):
    return [(f"{part}.{i}", min(TENSOR_BYTES, size // 3 - i * TENSOR_BYTES) // 4)
            for part in ("weight", "exp_avg", "exp_avg_sq") for i in range(-(-(size // 3) // TENSOR_BYTES))]


def numpy_state(size):
    import numpy
    random = numpy.random.default_rng(1)
    return {name: random.standard_normal(count, dtype=numpy.float32) for name, count in pieces(size)}


def torch_state(size):
    import torch
    return {name: torch.randn(count) for name, count in pieces(size)}


def safetensors(size):
    from safetensors.numpy import save_file
    state = numpy_state(size)
    return lambda folder: save_file(state, folder + "/state.safetensors")


def torch_save(size):
    import torch
    state = torch_state(size)
    return lambda folder: torch.save(state, folder + "/state.pt")


def dcp(size, in_background):
    warnings.filterwarnings("ignore")
    import torch.distributed as dist
    import torch.distributed.checkpoint as checkpoint
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    state = torch_state(size)

    def save(folder):
        if in_background:
            return checkpoint.async_save(state, checkpoint_id=folder).result
        checkpoint.save(state, checkpoint_id=folder)

    return save


LIBRARIES = {
    "safetensors": safetensors,
    "torch.save": torch_save,
    "dcp": lambda size: dcp(size, False),
    "dcp-async": lambda size: dcp(size, True),
}


def sync(folder):
    for where, _, names in os.walk(folder):
        for path in [where] + [os.path.join(where, name) for name in names]:
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.close(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("until", choices=["durable", "blocked"])
    parser.add_argument("bytes", type=int)
    args = parser.parse_args()
    save = LIBRARIES[args.library](args.bytes)
    print(sum(4 * count for _, count in pieces(args.bytes)), flush=True)
    for line in sys.stdin:
        folder = line.strip()
        os.makedirs(folder)
        start = time.perf_counter()
        wait = save(folder)
        blocked = time.perf_counter() - start
        if wait:
            wait()
        sync(folder)
        seconds = time.perf_counter() - start
        shutil.rmtree(folder)
        print(seconds if args.until == "durable" else blocked, flush=True)


if __name__ == "__main__":
    main()
