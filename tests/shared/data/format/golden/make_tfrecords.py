#!/usr/bin/env python3
"""Writes the TFRecord files in this folder with TensorFlow, to test our reader with the output of the
real writer. Requires tensorflow, numpy and pillow. The committed files were generated with
tensorflow 2.21.

Record i of eight contains an image of 4 x 3 pixels, of which pixel p is (i, 10 * i, p); the label
i mod 3 and its name; the floats i, i + 0.5 and -i; the integers i and -2^40; a target; a text of i
words.

sequences.tfrecord: record i of four is a SequenceExample of i + 1 time steps. Step t has the floats
(i, t) and the tag t mod 2; the context contains the class name as "word"."""
import io
import pathlib

import numpy
import PIL.Image
import tensorflow as tf

HERE = pathlib.Path(__file__).parent
NAMES = ["cat", "dog", "eel"]


def image(i):
    pixels = numpy.zeros((3, 4, 3), numpy.uint8)
    pixels[..., 0], pixels[..., 1] = i, 10 * i
    pixels[..., 2] = numpy.arange(12).reshape(3, 4)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue(), pixels


def example(i):
    encoded, pixels = image(i)
    of_bytes = lambda *values: tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    of_ints = lambda *values: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    of_floats = lambda *values: tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Example(features=tf.train.Features(feature={
        "image/encoded": of_bytes(encoded),
        "image/raw": of_bytes(pixels.tobytes()),
        "image/class/label": of_ints(i % 3),
        "image/class/text": of_bytes(NAMES[i % 3].encode()),
        "floats": of_floats(i, i + 0.5, -i),
        "ints": of_ints(i, -2**40),
        "target": of_floats(i / 4),
        "text": of_bytes(" ".join(["word"] * i).encode()),
        "nothing": tf.train.Feature(),
        "none": of_ints(),
    })).SerializeToString()


def sequence(i):
    steps = lambda features: tf.train.FeatureList(feature=features)
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={
            "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[NAMES[i % 3].encode()]))}),
        feature_lists=tf.train.FeatureLists(feature_list={
            "frames": steps([tf.train.Feature(float_list=tf.train.FloatList(value=[i, t]))
                             for t in range(i + 1)]),
            "tags": steps([tf.train.Feature(int64_list=tf.train.Int64List(value=[t % 2]))
                           for t in range(i + 1)]),
        })).SerializeToString()


def write(name, records, compression=""):
    with tf.io.TFRecordWriter(str(HERE / name), compression) as writer:
        for i in records:
            writer.write(example(i))


write("golden-00000-of-00002.tfrecord", range(5))
write("golden-00001-of-00002.tfrecord", range(5, 8))
write("golden-gzip.tfrecord", range(8), "GZIP")
write("golden-zlib.tfrecord", range(8), "ZLIB")
with tf.io.TFRecordWriter(str(HERE / "sequences.tfrecord")) as writer:
    for i in range(4):
        writer.write(sequence(i))
