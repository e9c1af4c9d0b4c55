#!/usr/bin/env python3
"""Writes the tar files in this folder with WebDataset, Python's tarfile and GNU tar, to test our reader
with the output of real writers. Requires webdataset, numpy, pillow and GNU tar. The committed files
were generated with webdataset 1.0.2, Python 3.11 and tar 1.34.

Sample i of five has the key KEYS[i] and these members. png: 4 x 3 pixels, of which pixel p is
(i, 10 * i, p); cls: i mod 3; json: {"name": cat, dog or eel, "score": [i, i / 4],
"deep": {"class": i mod 2}}; txt: "word " repeated i times."""
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile

import numpy
import PIL.Image
import webdataset

HERE = pathlib.Path(__file__).parent
NAMES = ["cat", "dog", "eel"]
# Special cases: a dot in a folder name, a name over 100 bytes, one that does not fit into the prefix
# field of ustar, and one that is not ASCII.
KEYS = ["plain", "a.b/with-folder", "folder-" * 12 + "/long-" + "name" * 5, "x" * 140, "größe"]


def image(i):
    pixels = numpy.zeros((3, 4, 3), numpy.uint8)
    pixels[..., 0], pixels[..., 1] = i, 10 * i
    pixels[..., 2] = numpy.arange(12).reshape(3, 4)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def members(i):
    described = {"name": NAMES[i % 3], "score": [i, i / 4], "deep": {"class": i % 2}}
    return {"png": image(i), "cls": str(i % 3).encode(), "json": json.dumps(described).encode(),
            "txt": b"word " * i}


def write_webdataset(name, samples):
    with webdataset.TarWriter(str(HERE / name), mtime=0, user="u", group="g") as writer:
        for i in samples:
            writer.write({"__key__": KEYS[i], **members(i)})


def write_tarfile(name, form, samples):
    with tarfile.open(HERE / name, "w", format=form) as tar:
        folder = tarfile.TarInfo("folder.d")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for i in samples:
            for extension, content in members(i).items():
                member = tarfile.TarInfo(KEYS[i] + "." + extension)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def write_gnu_tar(name, form, samples, *options):
    with tempfile.TemporaryDirectory() as folder:
        for i in samples:
            for extension, content in members(i).items():
                file = pathlib.Path(folder, KEYS[i] + "." + extension)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        subprocess.run(["tar", "--format=" + form, "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                        "--transform=s,^[.]/,,", *options, "-cf", str(HERE / name), "-C", folder, "."], check=True)


write_webdataset("webdataset-000.tar", range(3))
write_webdataset("webdataset-001.tar", range(3, 5))
write_tarfile("python-ustar.tar", tarfile.USTAR_FORMAT, [0, 1, 2])
write_tarfile("python-gnu.tar", tarfile.GNU_FORMAT, range(5))
write_tarfile("python-pax.tar", tarfile.PAX_FORMAT, range(5))
write_gnu_tar("gnutar-v7.tar", "v7", [0, 1])
write_gnu_tar("gnutar-gnu.tar", "gnu", range(5))
write_gnu_tar("gnutar-posix.tar", "posix", range(5))
write_gnu_tar("gnutar-gzip.tar.gz", "gnu", [0], "--gzip")
