"""The baseline of group.py: the GPT of train_baseline.py in PyTorch's DistributedDataParallel over Gloo.

  python -m torch.distributed.run --standalone --nproc-per-node=N group_baseline.py SETUP

Each step has SETUP["micro_batches"] micro-batches over all ranks, synchronized in the last of each rank. Rank 0 prints
the median time of SETUP["steps"] steps in ms.
"""
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "parity"))
from models import Gpt  # noqa: E402


def main():
    setup = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    gpt = Gpt(setup["layers"], setup["width"], setup["heads"], setup["context"], 256)
    model = torch.nn.parallel.DistributedDataParallel(gpt)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    own = setup["micro_batches"] // world
    times = []
    for _ in range(setup["steps"]):
        began = time.monotonic()
        optimizer.zero_grad()
        for i in range(own):
            tokens = torch.randint(256, (setup["micro_batch_size"], setup["context"] + 1))
            with contextlib.nullcontext() if i + 1 == own else model.no_sync():
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                (loss / own).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(1e3 * (time.monotonic() - began))
    if rank == 0:
        print(statistics.median(times[len(times) // 4:]), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
