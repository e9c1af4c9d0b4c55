"""The median time of a training step in PyTorch: step_times.py MODULE eager|compile STEPS THREADS. AdamW with the
fused update, as stoker's. Prints milliseconds."""
import sys
import time

import torch

import modules


def main():
    name, mode, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    module, loss, (inputs, *targets) = getattr(modules, name)()
    module.train()

    def forward():
        return loss(module(inputs), *targets)

    run = torch.compile(forward) if mode == "compile" else forward
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
    times = []
    for step in range(steps + 5):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        run().backward()
        optimizer.step()
        if step >= 5:
            times.append(time.perf_counter() - start)
    print(1e3 * sorted(times)[len(times) // 2])


main()
