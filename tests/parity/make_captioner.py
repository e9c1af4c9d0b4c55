#!/usr/bin/env python3
"""Writes the file of parity_captioner_test.cc: make_captioner.py FILE.

For each case, computed in double precision: logits in evaluation, the gradients of the first step, the losses of ten steps of
AdamW and the parameters and buffers afterwards, and the captions of a greedy search, with resnet8 after further steps, which
suffice to learn some. With resnet8 also the tolerances of single precision (reference.py), without captions; if the encoder is
trained, for fewer steps and with the first images for which rounding decides no ReLU. Weights and images are those of
formula.py.
"""
import copy
import itertools
import sys
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from captioner_model import Captioner, our_tensors
from formula import noise, set_tensors
from reference import REPEATS, Decisions, Run, perturbed, tolerances_of, undecided

# As in parity_captioner_test.cc.
STEPS, TRAINED_STEPS, FURTHER_STEPS, LEARNING_RATE = 10, 2, 30, 1e-2
BETAS, EPS, WEIGHT_DECAY = (0.9, 0.95), 1e-3, 0.1
SAMPLES, CAPTIONS, LENGTH, VOCAB = 3, 2, 6, 13
WIDTH, LAYERS, HEADS = 16, 2, 4
START, END, PADDING = 0, 1, -100
DECIDED = 1e-3  # a token whose logit exceeds all others by this is the same on every processor
FROZEN, TRAINED = ("encoder.*",), ()
# Of a vit_b_32, biases and embeddings: gradients pass through all of it, without gigabytes of weights in the file.
BIASES = ("encoder.*_weight", "encoder.*.weight")
CASES = {  # encoder, decoder, side of the images, what is frozen
    "resnet8_lstm_frozen": ("resnet8", "lstm", 16, FROZEN),
    "resnet8_lstm_trained": ("resnet8", "lstm", 16, TRAINED),
    "resnet8_transformer_frozen": ("resnet8", "transformer", 16, FROZEN),
    "resnet8_transformer_trained": ("resnet8", "transformer", 16, TRAINED),
    "inception_v3_lstm_frozen": ("inception_v3", "lstm", 75, FROZEN),
    "vit_b_32_transformer_trained": ("vit_b_32", "transformer", 64, BIASES),
}


def captions():
    """Of two tokens or more with their end; both of an image are the same, so that they can be learned."""
    labels = torch.full((SAMPLES, CAPTIONS, LENGTH), PADDING)
    for i in range(SAMPLES):
        length = LENGTH - 2 * i
        labels[i, :, : length - 1] = 2 + ((noise(10 * i, length - 1) + 1) / 2 * (VOCAB - 2)).long()
        labels[i, :, length - 1] = END
    return labels


def images(number, side):
    """Each of another color, with noise."""
    count = SAMPLES * 3 * side * side
    colors = 3 * noise(SAMPLES * number, 3 * SAMPLES).view(SAMPLES, 3, 1, 1)
    return colors + noise(number * count, count).view(SAMPLES, 3, side, side)


@torch.no_grad()
def make(encoder, decoder, side, frozen):
    """In double precision. Skips weight initialization, because all weights are set."""
    with torch.device("meta"):
        model = Captioner(encoder, decoder, (3, side, side), WIDTH, LAYERS, HEADS, VOCAB, LENGTH)
    model = model.double().to_empty(device="cpu")
    set_tensors(our_tensors(model.named_parameters()).items())
    set_tensors((name, buffer) for name, buffer in model.named_buffers() if buffer.dim() > 0)
    for name, buffer in model.named_buffers():
        if buffer.dim() == 0:
            buffer.zero_()  # num_batches_tracked
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(fnmatchcase(name, glob) for glob in frozen))
    return model


@torch.no_grad()
def greedy(model, images):
    """The tokens without start and end, padded. The start is never chosen, as in stoker."""
    found = torch.full((len(images), LENGTH), PADDING)
    for row, encoded in zip(found, model.encode(images)):
        tokens = [START]
        while len(tokens) <= LENGTH:
            logits = model.decoder(encoded[None], torch.tensor([tokens]))[0, -1]
            logits[START] = -torch.inf
            best, second = logits.topk(2).values
            assert best - second > DECIDED, f"a token is chosen by {best - second}"
            token = logits.argmax().item()
            if token == END:
                break
            row[len(tokens) - 1] = token
            tokens.append(token)
    return found


def run(model, side, is_frozen, first_image, steps):
    """Trains for steps[0], and without recording for steps[1]."""
    dtype, labels = model.decoder.head.weight.dtype, captions()
    batches = [images(first_image + i, side).float().to(dtype) for i in range(2)]
    with torch.no_grad():
        tensors = {"logits": model.eval()(batches[0], labels)}
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    parameters = [parameter for _, parameter in trained]
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, BETAS, EPS, WEIGHT_DECAY)
    model.train()
    model.encoder.train(not is_frozen)
    losses = []
    with Decisions() as decisions:
        for step in range(sum(steps)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batches[step % 2], labels).flatten(0, 1), labels.flatten())
            loss.backward()
            if step == 0:
                gradients = our_tensors((name, parameter.grad) for name, parameter in trained)
                tensors |= {f"gradient/{name}": gradient.clone() for name, gradient in gradients.items()}
            losses.append(loss.detach())
            optimizer.step()
            if step == steps[0] - 1:
                final = our_tensors([*trained, *model.named_buffers()])
                tensors |= {f"final/{name}": tensor.detach().clone() for name, tensor in final.items()}
    tensors["losses"] = torch.stack(losses[: steps[0]])
    return Run({name: tensor.double() for name, tensor in tensors.items()}, model, decisions.inputs)


def run_in_double(model, side, is_frozen, further_steps):
    exact = run(model, side, is_frozen, 0, (STEPS, further_steps))
    return exact.tensors | {"captions": greedy(model.eval(), images(0, side).float().double())}


def run_in_single(model, side, is_frozen):
    """What single precision must be close to, and how close."""
    model, steps = model.float(), (STEPS if is_frozen else TRAINED_STEPS, 0)
    for first_image in itertools.count(step=2):
        exact = run(copy.deepcopy(model).double(), side, is_frozen, first_image, steps)
        repeats = [run(perturbed(model, seed), side, is_frozen, first_image, steps) for seed in range(REPEATS)]
        if is_frozen or not undecided(exact, repeats):  # no gradient passes the ReLUs of a frozen encoder
            break
    tolerances = tolerances_of(None, exact, repeats)
    return (
        exact.tensors
        | {f"{name}#tolerance": torch.tensor(tolerance).double() for name, tolerance in tolerances.items()}
        | {"first_image": torch.tensor(first_image)}
    )


def main():
    torch.set_num_threads(1)
    tensors = {"labels": captions()}
    for name, (encoder, decoder, side, frozen) in CASES.items():
        model = make(encoder, decoder, side, frozen)
        is_small, is_frozen = encoder == "resnet8", frozen == FROZEN
        computed = {}
        if is_small:
            computed[name] = run_in_single(copy.deepcopy(model), side, is_frozen)
        computed[f"{name}_double"] = run_in_double(model, side, is_frozen, FURTHER_STEPS if is_small else 0)
        for variant, values in computed.items():
            tensors |= {f"{variant}/{what}": tensor for what, tensor in values.items()}
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
