"""The baseline of stoker-bench-train: the same model, batch and optimizer in idiomatic PyTorch; gpt2, llama and
bert are those of the package transformers; the decoders of captioner are torch's own modules.

Prints the number of elements in the model's parameters and buffers. Then, for each line on standard input, which is a
number of seconds, trains for that long and prints steps per second. Exits at the end of standard input.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "parity"))
from captioner_model import Captioner  # noqa: E402
from models import Blstm, Gpt, Lenet, Mlp, Resnet  # noqa: E402
from vision_models import InceptionV3, Vit  # noqa: E402


class Logits(torch.nn.Module):
    """A causal language model of transformers, from tokens to logits."""

    def __init__(self, setup):
        super().__init__()
        import transformers
        common = {"vocab_size": setup["classes"], "use_cache": False}
        if setup["model"] == "gpt2":
            config = transformers.GPT2Config(
                n_layer=setup["layers"], n_head=setup["heads"], n_embd=setup["width"], n_positions=setup["context"],
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, **common)
        else:
            config = transformers.LlamaConfig(
                num_hidden_layers=setup["layers"], num_attention_heads=setup["heads"], hidden_size=setup["width"],
                num_key_value_heads=setup["key_value_heads"], intermediate_size=setup["mlp"],
                max_position_embeddings=setup["context"], rms_norm_eps=1e-6, tie_word_embeddings=False, **common)
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")

    def forward(self, tokens):
        return self.model(tokens).logits


class Bert(torch.nn.Module):
    """A classifier of transformers, from tokens to logits."""

    def __init__(self, setup):
        super().__init__()
        import transformers
        config = transformers.BertConfig(
            num_hidden_layers=setup["layers"], num_attention_heads=setup["heads"], hidden_size=setup["width"],
            intermediate_size=4 * setup["width"], max_position_embeddings=setup["context"], vocab_size=setup["vocab"],
            num_labels=setup["classes"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.model = transformers.BertForSequenceClassification._from_config(config, attn_implementation="sdpa")

    def forward(self, tokens):
        return self.model(tokens).logits


def captioner_of(setup):
    sizes = [setup[key] for key in ("width", "layers", "heads", "classes", "context")]
    return Captioner(setup["encoder"], setup["decoder"], setup["input"], *sizes)


def vit_of(setup):
    sizes = [setup[key] for key in ("patch", "layers", "heads", "width", "mlp", "classes")]
    return Vit(*setup["input"][:2], *sizes)


def model_of(setup):
    channels = setup["input"][0]
    return {
        "mlp": lambda: Mlp(channels, setup["hidden"], 1),
        "mlp-small": lambda: Mlp(channels, setup["hidden"], 1),
        "gpt": lambda: Gpt(setup["layers"], setup["width"], setup["heads"], setup["context"], setup["classes"]),
        "gpt2": lambda: Logits(setup),
        "llama": lambda: Logits(setup),
        "bert": lambda: Bert(setup),
        "captioner-lstm": lambda: captioner_of(setup),
        "captioner-transformer": lambda: captioner_of(setup),
        "vit": lambda: vit_of(setup),
        "inception_v3": lambda: InceptionV3(channels, setup["classes"], aux_logits=False, dropout=0.0),
        "lenet": lambda: Lenet(channels, 28, setup["classes"]),
        "blstm": lambda: Blstm(setup["input"][1], setup["width"], setup["classes"]),
        "resnet14": lambda: Resnet(setup["layers"], channels, setup["classes"]),
    }[setup["model"]]()


def loss_of(setup, model):
    """The complete forward pass, starting from a batch in host memory."""
    batch, shape, classes = setup["batch"], setup["input"], setup["classes"]
    if setup["model"] in ("gpt", "gpt2", "llama"):
        tokens = torch.randint(min(classes, 256), (batch, *shape), dtype=torch.uint8)
        return lambda: F.cross_entropy(model(tokens[:, :-1].long()).flatten(0, 1), tokens[:, 1:].long().flatten())
    if classes == 0:
        inputs, targets = torch.rand(batch, *shape) * 2 - 1, torch.rand(batch, 1) * 2 - 1
        return lambda: F.mse_loss(model(inputs), targets)
    labels = torch.randint(classes, (batch,))
    if setup["model"] == "bert":
        tokens = torch.randint(classes, (batch, *shape), dtype=torch.uint8)
        return lambda: F.cross_entropy(model(tokens.long()), labels)
    if setup["model"] == "blstm":
        sequences = torch.rand(batch, *shape) * 2 - 1
        return lambda: F.cross_entropy(model(sequences), labels)
    images = torch.randint(256, (batch, *shape), dtype=torch.uint8)
    if "captions" in setup:
        captions = torch.randint(256, (batch, setup["captions"], setup["context"]))
        return lambda: F.cross_entropy(
            model((images.float() / 255 - 0.5) / 0.5, captions).flatten(0, 1), captions.flatten())
    return lambda: F.cross_entropy(model((images.float() / 255 - 0.5) / 0.5), labels)


def steps_per_second(step, seconds):
    for _ in range(3):
        step()
    start, steps = time.monotonic(), 0
    while steps == 0 or time.monotonic() - start < seconds:
        step()
        steps += 1
    return steps / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=["eager", "compiled"])
    parser.add_argument("setup", type=json.loads)
    args = parser.parse_args()
    torch.set_num_threads(args.setup["threads"])
    torch.set_flush_denormal(True)  # constant batches soon give denormals
    model = model_of(args.setup)
    saved = model.state_dict().keys()
    size = sum(t.numel() for name, t in [*model.named_parameters(), *model.named_buffers()] if name in saved)
    loss = loss_of(args.setup, torch.compile(model) if args.how == "compiled" else model)
    # Fused: the fastest implementation in PyTorch, with the same arithmetic as stoker.
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        optimizer.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()  # compiles the model
    print(size, flush=True)
    for line in sys.stdin:
        print(steps_per_second(step, float(line)), flush=True)


if __name__ == "__main__":
    main()
