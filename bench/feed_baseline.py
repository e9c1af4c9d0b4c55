"""The baselines of stoker-bench's feed-images: uint8 batches of the same JPEG files, loaded by another library.

  feed_baseline.py LIBRARY FOLDER JOB     large: random crops resized to 224x224; small: unchanged images; cached: the
                                          same, decoded in advance: tf.data with cache(), FFCV from pixels

Prints the number of files when it is ready. Then, for each line on standard input, which is a number of seconds, loads
images for that long with one worker and prints images per second of CPU time, including child processes. Exits at the
end of its input.
"""
import argparse
import glob
import math
import os
import random
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
SIDE = 224
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
EPOCH = {"large": 4096, "small": 65536, "cached": 65536}  # images per epoch; the files repeat
BATCH = {"large": 64, "small": 256, "cached": 256}


def crop_box(width, height, generator):
    """The box (left, top, width, height) of a random resized crop, sampled as in torchvision."""
    for _ in range(10):
        area = width * height * generator.uniform(*AREA)
        ratio = math.exp(generator.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return generator.randint(0, width - w), generator.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def dataloader(read):
    """PyTorch's DataLoader with one worker process; `read` returns a tensor for a path."""
    def feed(files, job):
        import torch
        torch.set_num_threads(1)

        class Images(torch.utils.data.Dataset):
            def __len__(self):
                return len(files)

            def __getitem__(self, index):
                return read(files[index], job, random.Random(index))

        loader = torch.utils.data.DataLoader(Images(), batch_size=BATCH[job], num_workers=1, drop_last=True,
                                             persistent_workers=True)
        while True:
            yield from loader
    return feed


def read_with_pillow(path, job, generator):
    import numpy
    import torch
    from PIL import Image
    image = Image.open(path).convert("RGB")
    if job == "large":
        left, top, width, height = crop_box(*image.size, generator)
        image = image.resize((SIDE, SIDE), Image.BILINEAR, box=(left, top, left + width, top + height))
    return torch.from_numpy(numpy.array(image))


def random_crop(tensor, job, generator):
    if job == "small":
        return tensor
    from torchvision.transforms.v2.functional import resized_crop
    left, top, width, height = crop_box(tensor.shape[2], tensor.shape[1], generator)
    return resized_crop(tensor, top, left, height, width, [SIDE, SIDE], antialias=True)


def read_with_torchvision(path, job, generator):
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    return random_crop(decode_jpeg(read_file(path), mode=ImageReadMode.RGB), job, generator)


def read_with_simplejpeg(path, job, generator):
    import simplejpeg
    import torch
    with open(path, "rb") as file:
        pixels = simplejpeg.decode_jpeg(file.read(), "RGB")
    return random_crop(torch.from_numpy(pixels).permute(2, 0, 1), job, generator)


def spdl(files, job):
    """SPDL has no random resized crop: resizes to 256 and crops the center instead."""
    import spdl.io
    import spdl.pipeline
    side, crop = (256, SIDE) if job == "large" else (32, None)
    filter_desc = spdl.io.get_video_filter_desc(scale_width=side, scale_height=side, crop_width=crop, crop_height=crop,
                                        pix_fmt="rgb24")

    def decode(paths):
        frames = [spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=filter_desc) for path in paths]
        return spdl.io.to_torch(spdl.io.convert_frames(frames))

    size = BATCH[job]
    while True:
        groups = [files[at:at + size] for at in range(0, len(files), size)]
        pipeline = (spdl.pipeline.PipelineBuilder().add_source(groups).pipe(decode, concurrency=1).add_sink(4)
                    .build(num_threads=1))
        with pipeline.auto_stop():
            yield from pipeline


def dali(files, job):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH[job], num_threads=1, device_id=None)
    def images():
        jpegs, _ = fn.readers.file(files=files)
        if job == "small":
            return fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
        crops = fn.decoders.image_random_crop(jpegs, device="cpu", output_type=types.RGB, random_area=list(AREA),
                                              random_aspect_ratio=list(RATIO))
        return fn.resize(crops, size=[SIDE, SIDE], antialias=True)

    pipeline = images()
    pipeline.build()
    while True:
        yield pipeline.run()[0].as_array()


def tf_data(files, job):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def load(path):
        jpeg = tf.io.read_file(path)
        if job != "large":
            return tf.image.decode_jpeg(jpeg, channels=3)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(jpeg), tf.zeros([1, 0, 4]), area_range=AREA, aspect_ratio_range=RATIO,
            use_image_if_no_bounding_boxes=True, max_attempts=10)
        crop = tf.image.decode_and_crop_jpeg(jpeg, tf.concat([begin[:2], size[:2]], 0), channels=3)
        return tf.cast(tf.image.resize(crop, [SIDE, SIDE], antialias=True), tf.uint8)

    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    paths = tf.data.Dataset.from_tensor_slices(files)
    if job == "cached":
        images = paths.map(load, num_parallel_calls=1).cache().repeat().with_options(options)
    else:
        images = paths.repeat().map(load, num_parallel_calls=1).with_options(options)
    return iter(images.batch(BATCH[job], drop_remainder=True).prefetch(2))


def ffcv(files, job):
    """Reads FFCV's own file format; the conversion to it (pixels or JPEG of quality 90) is not measured."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.writer import DatasetWriter
    from PIL import Image

    class Images:
        def __len__(self):
            return len(files)

        def __getitem__(self, index):
            return Image.open(files[index]).convert("RGB"), 0

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.beton")
        mode = "raw" if job == "cached" else "jpg"
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()},
                               num_workers=2)
        with open(os.devnull, "w") as devnull:
            output, sys.stdout = sys.stdout, devnull
            writer.from_indexed_dataset(Images())
            sys.stdout = output
        decoder = RandomResizedCropRGBImageDecoder((SIDE, SIDE)) if job == "large" else SimpleRGBImageDecoder()
        loader = Loader(path, batch_size=BATCH[job], num_workers=1, order=OrderOption.SEQUENTIAL, drop_last=True,
                        os_cache=True, pipelines={"image": [decoder], "label": [IntDecoder()]})
        while True:
            yield from loader


LIBRARIES = {
    "pillow": dataloader(read_with_pillow), "torchvision": dataloader(read_with_torchvision),
    "simplejpeg": dataloader(read_with_simplejpeg), "spdl": spdl, "dali": dali, "tf.data": tf_data, "ffcv": ffcv,
}


def cpu_seconds(pid="self"):
    """CPU time of a process and of its children, including running ones."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    seconds = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path) as file:
            seconds += sum(cpu_seconds(child) for child in file.read().split())
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("folder")
    parser.add_argument("job", choices=EPOCH)
    args = parser.parse_args()
    paths = sorted(glob.glob(args.folder + "/**/*.[jJ][pP]*[gG]", recursive=True))
    generator = random.Random(0)
    files = [path for _ in range(-(-EPOCH[args.job] // len(paths))) for path in generator.sample(paths, len(paths))]
    results, sys.stdout = sys.stdout, sys.stderr  # reserve stdout for results
    batches = LIBRARIES[args.library](files[:EPOCH[args.job]], args.job)
    for _ in range(EPOCH[args.job] // BATCH[args.job] if args.job == "cached" else 3):
        next(batches)
    print(len(paths), file=results, flush=True)
    for line in sys.stdin:
        end = time.monotonic() + float(line)
        start, images = cpu_seconds(), 0
        while time.monotonic() < end or images == 0:
            next(batches)
            images += BATCH[args.job]
        print(images / max(cpu_seconds() - start, 0.01), file=results, flush=True)


if __name__ == "__main__":
    main()
