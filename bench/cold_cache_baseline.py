"""The baseline of stoker-bench's feed-cold: PyTorch's DataLoader on JPEG files with a delay per file.

  cold_cache_baseline.py FOLDER WORKERS DELAY_MS BATCH     random crops resized to 224x224, as uint8

Prints the number of files when it is ready. Then, for each line on standard input, which is a number of seconds, loads
images for that long and prints images per second. Exits at the end of its input.
"""
import argparse
import glob
import random
import sys
import time

import numpy
import torch
from PIL import Image

from feed_baseline import SIDE, crop_box

EPOCH = 4096  # images per epoch; the files repeat


class ThrottledImages(torch.utils.data.Dataset):
    def __init__(self, files, delay):
        self.files, self.delay = files, delay

    def __len__(self):
        return EPOCH

    def __getitem__(self, index):
        time.sleep(self.delay)
        image = Image.open(self.files[index % len(self.files)]).convert("RGB")
        left, top, width, height = crop_box(*image.size, random.Random(index))
        image = image.resize((SIDE, SIDE), Image.BILINEAR, box=(left, top, left + width, top + height))
        return torch.from_numpy(numpy.array(image))


def batches(files, args):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(ThrottledImages(files, args.delay_ms / 1000), batch_size=args.batch, shuffle=True,
                                         num_workers=args.workers, drop_last=True, persistent_workers=True)
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("workers", type=int)
    parser.add_argument("delay_ms", type=float)
    parser.add_argument("batch", type=int)
    args = parser.parse_args()
    files = sorted(glob.glob(args.folder + "/**/*.[jJ][pP]*[gG]", recursive=True))
    loader = batches(files, args)
    next(loader)
    print(len(files), flush=True)
    for line in sys.stdin:
        for _ in range(2 * args.workers):  # discard prefetched batches
            next(loader)
        start, images = time.monotonic(), 0
        while time.monotonic() - start < float(line) or images == 0:
            next(loader)
            images += args.batch
        print(images / (time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main()
