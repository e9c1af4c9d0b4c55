"""The baseline of group.py: the GPT of train_baseline.py in PyTorch's DistributedDataParallel over Gloo.

  python -m torch.distributed.run --standalone --nproc-per-node=N group_baseline.py SETUP

Each step has SETUP["micro_batches"] micro-batches over all ranks, synchronized in the last of each rank. Rank 0 prints
the median time of SETUP["steps"] steps in ms. With SETUP["folder"], the ranks write their pids there, and rank 0 each step and, every
SETUP["save_every_steps"], a checkpoint, from which a restart continues. With SETUP["bucket_mib"] 0 nothing is summed.
"""
import contextlib
import json
import os
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


def write_line(folder, line):
    with open(folder / "steps", "a") as steps:
        steps.write(f"{line}\n")


def resume(folder, rank, gpt, optimizer):
    """The first step."""
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    if not (folder / "checkpoint").exists():
        return 0
    step, model, state = torch.load(folder / "checkpoint")
    gpt.load_state_dict(model)
    optimizer.load_state_dict(state)
    if rank == 0:
        write_line(folder, "resumed")
    return step


def main():
    setup = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    gpt = Gpt(setup["layers"], setup["width"], setup["heads"], setup["context"], 256)
    bucket_mib = setup.get("bucket_mib", 25)
    model = torch.nn.parallel.DistributedDataParallel(gpt, bucket_cap_mb=bucket_mib or None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    own = setup["micro_batches"] // world
    folder = Path(setup["folder"]) if "folder" in setup else None
    first = resume(folder, rank, gpt, optimizer) if folder else 0
    times = []
    for step in range(first, setup["steps"]):
        began = time.monotonic()
        optimizer.zero_grad()
        for i in range(own):
            tokens = torch.randint(256, (setup["micro_batch_size"], setup["context"] + 1))
            with contextlib.nullcontext() if i + 1 == own and bucket_mib else model.no_sync():
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                (loss / own).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(1e3 * (time.monotonic() - began))
        if folder and rank == 0:
            write_line(folder, "step")
            if (step + 1) % setup["save_every_steps"] == 0:
                torch.save((step + 1, gpt.state_dict(), optimizer.state_dict()), folder / "checkpoint.new")
                os.replace(folder / "checkpoint.new", folder / "checkpoint")
    if rank == 0:
        print(statistics.median(times[len(times) // 4:]), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
