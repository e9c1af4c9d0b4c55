#!/usr/bin/env python3
"""check_captions.py BIN FOLDER: trains small captioners with the programs in BIN, evaluates them greedily and with
eval.generate.num_beams, and compares the captions with a search in PyTorch, and what TensorBoard shows of them.

Two of three bright images are "a" with one of eight nouns, the others are a "bright day": the first word that greedy search
chooses is not that of the most likely caption."""
import json
import random
import shutil
import sys
from pathlib import Path

import torch
from captioner_model import Captioner, our_tensors
from PIL import Image
from programs import Programs
from safetensors.torch import load_file
from torchvision.transforms.v2 import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared/metrics"))
from read_events import read_events  # noqa: E402

SIDE, WIDTH, LAYERS, HEADS, LENGTH, STEPS = 16, 32, 1, 2, 5, 200
TIE = 1e-4  # log probabilities closer than this are the same: single precision decides between their captions
START, END = 0, 1
NOUNS = ("beach", "cloud", "field", "lamp", "meadow", "snow", "sun", "wall")
WORDS = ("a", "bright", "day", "dark", "night", *NOUNS)
VALIDATED = 12  # as many as are shown


def write_images(folder):
    """Every second one is bright."""
    rng = random.Random(1)
    for part, count in (("train", 768), ("val", VALIDATED)):
        (folder / part).mkdir(parents=True)
        rows = []
        for i in range(count):
            is_bright, turn = i % 2 == 0, i // 2
            caption = "dark night"
            if is_bright:
                caption = "bright day" if part == "val" or turn % 3 == 2 else f"a {NOUNS[turn % len(NOUNS)]}"
            level = rng.randint(170, 240) if is_bright else rng.randint(20, 90)
            Image.new("RGB", (SIDE, SIDE), (level, level, level)).save(folder / part / f"{i}.png")
            rows.append({"path": f"{part}/{i}.png", "captions": [caption]})
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.txt").write_text("".join(word + "\n" for word in WORDS))


def config_of(programs, decoder):
    images = programs.folder / "images"
    data = "".join(
        f"  {part}: {{format: image_list, path: {images}/{part}.jsonl, fields: {{caption: captions}},"
        f" tokenizer: {{path: {images}/words.txt}}, sequence: {{max_captions: 1}},"
        f" transforms: [resize: {{size: [{SIDE}, {SIDE}]}}]}}\n" for part in ("train", "val"))
    path = programs.folder / f"{decoder}.yaml"
    path.write_text(
        f"data:\n{data}model: {{name: captioner, encoder: {{name: resnet8}}, max_length: {LENGTH}, decoder: {{name: {decoder},"
        f" hidden_size: {WIDTH}, num_layers: {LAYERS}, num_heads: {HEADS}, dropout: 0}}}}\ntask: {{name: captioning}}\n"
        "optimizer: {name: adamw, lr: 5.0e-3}\nscheduler: {name: constant, warmup_steps: 10}\n"
        f"train: {{max_steps: {STEPS}, micro_batch_size: 32, device: cpu, num_threads: 1}}\n")
    return path


@torch.no_grad()
def load(checkpoint, decoder, vocab):
    model = Captioner("resnet8", decoder, (3, SIDE, SIDE), WIDTH, LAYERS, HEADS, vocab, LENGTH)
    saved = load_file(checkpoint / "model.safetensors")
    ours = our_tensors([*model.named_parameters(), *model.named_buffers()])
    assert set(ours) == set(saved), set(ours) ^ set(saved)
    for name, tensor in ours.items():
        tensor.copy_(saved[name])
    return model.double().eval()


@torch.no_grad()
def best_score(model, image, beams):
    """The mean log probability, its end included, of the best caption that a search with several beams finds."""
    encoded, live, complete = model.encode(image[None]), [(0.0, [])], []
    for length in range(1, LENGTH + 1):
        tokens = torch.tensor([[START, *words] for _, words in live])
        logits = model.decoder(encoded.expand(len(live), *encoded.shape[1:]), tokens)[:, -1]
        logits[:, START] = -torch.inf
        candidates = sorted(
            ((score + gain, [*words, token])
             for (score, words), gains in zip(live, logits.log_softmax(1).tolist()) for token, gain in enumerate(gains)),
            reverse=True)
        complete += [(score / length, words[:-1]) for score, words in candidates[:beams] if words[-1] == END]
        live = [candidate for candidate in candidates if candidate[1][-1] != END][:beams]
        # No further token may improve on the best caption.
        if complete and max(complete)[0] >= live[0][0] / LENGTH:
            break
    return max(complete + [(score / LENGTH, words) for score, words in live])[0]


@torch.no_grad()
def finds(model, image, beams, words):
    """Whether the search finds the caption of these tokens, or another one as likely."""
    chosen = [*words, END][:LENGTH]
    logits = model.decoder(model.encode(image[None]), torch.tensor([[START, *chosen[:-1]]]))[0]
    logits[:, START] = -torch.inf
    gains = logits.log_softmax(1)
    of_chosen = gains[range(len(chosen)), chosen]
    if beams == 1:
        return bool((gains.amax(1) - of_chosen <= TIE).all())
    return abs(of_chosen.mean().item() - best_score(model, image, beams)) <= TIE


def captions_of(table):
    """The second column of the rows after the header."""
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [row.split(" | ")[1] for row in rows]


def check_tensorboard(run, table, step):
    """As TensorBoard's own loader reads it."""
    shown = read_events(str(run / "tensorboard/eval/val"))
    assert shown["texts"]["captions"] == [["text", step, table]], shown["texts"]
    path = run / f"eval/artifacts/step-{step:09}.val.captions.png"
    width, height = Image.open(path).size
    assert shown["images"] == {"captions_image": [[step, width, height, path.stat().st_size]]}, shown["images"]


def check(programs, decoder):
    programs.train(config_of(programs, decoder), decoder)
    run, words = programs.folder / decoder, ["<s>", "</s>", "<unk>", *WORDS]
    model = load(run / f"checkpoints/step-{STEPS:09}", decoder, len(words))
    images = [Image.open(programs.folder / "images" / "val" / f"{i}.png") for i in range(VALIDATED)]
    pixels = [functional.pil_to_tensor(image).double() / 255 for image in images]
    found = {}
    for beams in (1, 3):
        evaluated = run.with_name(f"{decoder}{beams}")  # a checkpoint is evaluated once
        shutil.copytree(run, evaluated)
        settings = ("--set", f"eval.generate={{num_beams: {beams}}}") if beams > 1 else ()
        metrics = programs.evaluate(evaluated.name, *settings)[STEPS]
        table = (evaluated / f"eval/artifacts/step-{STEPS:09}.val.captions.md").read_text()
        found[beams] = captions_of(table)
        for image, caption in zip(pixels, found[beams], strict=True):
            assert finds(model, image, beams, [words.index(word) for word in caption.split()]), (decoder, beams, caption)
        # Those of bright images are exact with beams only.
        assert metrics["exact_match"] == (1 if beams > 1 else 0.5), (decoder, beams, metrics, found[beams])
        check_tensorboard(evaluated, table, STEPS)
    print(f"{decoder}: found by PyTorch, too: greedy {found[1][:2]} and with 3 beams {found[3][:2]}")


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    programs = Programs(folder, Path(sys.argv[1]))
    write_images(folder / "images")
    for decoder in ("lstm", "transformer"):
        check(programs, decoder)


if __name__ == "__main__":
    main()
