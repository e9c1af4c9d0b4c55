"""The baseline of the part `saves` of group.py: one rank of a torch.distributed.checkpoint.async_save over Gloo.

  RANK=R WORLD_SIZE=W MASTER_ADDR=HOST MASTER_PORT=PORT group_save_baseline.py CHECKPOINT

Its state is that of the rank in CHECKPOINT, which stokerd has saved with a sharded optimizer: the complete model, and a
part of the optimizer state. Prints a line when it is loaded. Then, for each line on standard input, which is a new
folder, saves the state there and prints "saved", or on rank 0 the seconds until this rank can continue and until the
files of all ranks are synced, and their bytes. Exits at the end of standard input.
"""
import shutil
import sys
import time
import warnings
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

sys.dont_write_bytecode = True
from checkpoint_baseline import sync  # noqa: E402


def load(path):
    """Not as a mapping of the file, whose pages a save would read."""
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def main():
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoint = Path(sys.argv[1])
    state = {f"model.{name}": tensor for name, tensor in load(checkpoint / "model.safetensors").items()}
    shard = load(checkpoint / f"optimizer-{rank + 1:05}-of-{world:05}.safetensors")
    # Plain tensors of one name would be saved once, for all ranks.
    state |= {f"optimizer.{rank}.{name}": tensor for name, tensor in shard.items()}
    print("loaded", flush=True)
    for line in sys.stdin:
        folder = line.strip()
        start = time.perf_counter()
        saving = dcp.async_save(state, checkpoint_id=folder)
        blocked = time.perf_counter() - start
        saving.result()
        if rank != 0:
            print("saved", flush=True)
            continue
        sync(folder)
        durable = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        shutil.rmtree(folder)
        print(blocked, durable, size, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
