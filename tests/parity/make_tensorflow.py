#!/usr/bin/env python3
"""Writes the golden files of parity_tensorflow_test.cc: make_tensorflow.py [FOLDER].

Trains the published models (docs/published.md), in small sizes, for three steps of Adam with
TensorFlow. A file has the initial weights, the batches, and the loss and the gradients of each step
and the final weights as TensorFlow computes them, with stoker's names and layout. Requires
tensorflow and safetensors.
"""
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a GPU multiplies in TF32
import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

import tensorflow_models as models
from tensorflow_models import v1

SEEDS = {"mlp": 6, "blstm": 1}
STEPS = 3
UNITS = {"mlp": 8, "blstm": 3}
LR = {"mlp": 1e-2, "blstm": 1e-3}
BETA2, EPS = 0.999, 1e-8
SHAPES = {"mlp": [6, 10], "blstm": [5, 4, 6]}  # mlp [batch, features], blstm [steps, batch, features]


def normal(random, shape, std=1.0):
    return (random.standard_normal(shape) * std).astype(np.float32)


def make_batches(name, random):
    """Standard normal numbers; the label is 1 if the sum of a sample's numbers is above 0."""
    batches = []
    for _ in range(STEPS):
        x = normal(random, SHAPES[name])
        batches.append((x, (x.sum(axis=1 if name == "mlp" else (0, 2)) > 0).astype(np.float32)))
    return batches


def with_gates_of_pytorch(columns):
    """TensorFlow's gates are input, cell, forget, output; PyTorch's input, forget, cell, output."""
    i, j, f, o = np.split(columns, 4, axis=-1)
    return np.concatenate([i, f, j, o], axis=-1)


def to_stoker(name, values):
    """Values by TensorFlow's names -> by stoker's. The forget bias is not included."""
    layers = {"hidden": "0", "output": "2"} if name == "mlp" else {"output": "fc"}
    tensors = {}
    for scope, layer in layers.items():
        tensors[f"{layer}.weight"] = values[f"{scope}/kernel"].T
        tensors[f"{layer}.bias"] = values[f"{scope}/bias"]
    directions = {} if name == "mlp" else {"forward": "l0", "backward": "l0_reverse"}
    for scope, suffix in directions.items():
        kernel = with_gates_of_pytorch(values[f"{scope}/kernel"])
        features = SHAPES[name][2]
        tensors[f"lstm.weight_ih_{suffix}"] = kernel[:features].T
        tensors[f"lstm.weight_hh_{suffix}"] = kernel[features:].T
        tensors[f"lstm.bias_ih_{suffix}"] = with_gates_of_pytorch(values[f"{scope}/bias"])
    return {key: np.ascontiguousarray(value) for key, value in tensors.items()}


def check_distance_from_zero(gradient):
    """Adam's step depends on the ratios of an element's gradients, which rounding must not change."""
    size = np.abs(gradient)
    assert size[size > 0].min() > 3e-4 * size.max(), "choose another seed"


def run(name):
    random = np.random.default_rng(SEEDS[name])
    batches = make_batches(name, random)
    tensors, losses = {}, []
    with tf.Graph().as_default():
        x, y = v1.placeholder(tf.float32, SHAPES[name]), v1.placeholder(tf.float32, [None])
        loss = models.sigmoid_cross_entropy(getattr(models, name)(x, UNITS[name]), y)
        # TensorFlow adds its epsilon ("epsilon hat") before the correction of the second moment, PyTorch after it.
        epsilon = v1.placeholder(tf.float32, [])
        optimizer = v1.train.AdamOptimizer(LR[name], beta2=BETA2, epsilon=epsilon)
        gradients = {variable.op.name: gradient for gradient, variable in optimizer.compute_gradients(loss)}
        variables = {variable.op.name: variable for variable in v1.trainable_variables()}
        # Gradients are fed, because an update could change weights that another gradient still reads.
        fed = {key: v1.placeholder(tf.float32, variable.shape) for key, variable in variables.items()}
        update = optimizer.apply_gradients([(fed[key], variable) for key, variable in variables.items()])
        config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with v1.Session(config=config) as session:
            session.run(v1.global_variables_initializer())
            for variable in variables.values():
                variable.load(normal(random, variable.shape.as_list(), 0.3), session)
            initial = session.run(variables)
            for step, (values, labels) in enumerate(batches):
                value, each = session.run([loss, gradients], {x: values, y: labels})
                correction = {epsilon: EPS * (1 - BETA2 ** (step + 1)) ** 0.5}
                session.run(update, correction | {fed[key]: gradient for key, gradient in each.items()})
                losses.append(value)
                rows = values if name == "mlp" else values.transpose(1, 0, 2)
                tensors[f"batch{step}/input"] = np.ascontiguousarray(rows)
                tensors[f"batch{step}/label"] = labels.astype(np.int64)
                for key, gradient in to_stoker(name, each).items():
                    check_distance_from_zero(gradient)
                    tensors[f"gradient{step}/{key}"] = gradient
            final = session.run(variables)
    for when, values in (("initial", initial), ("final", final)):
        tensors |= {f"{when}/{key}": value for key, value in to_stoker(name, values).items()}
    tensors["losses"] = np.array(losses, dtype=np.float64)
    return tensors


def main():
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else here / "golden" / "tensorflow")
    folder.mkdir(parents=True, exist_ok=True)
    models.start_graph_mode()
    for name in UNITS:
        save_file(run(name), folder / f"{name}.safetensors", {"tensorflow": tf.__version__})


if __name__ == "__main__":
    main()
