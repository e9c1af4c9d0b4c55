"""Command line of stoker_export."""
import argparse
import collections.abc
import importlib
import logging
import os
import sys
import traceback
import warnings

from . import ExportError, _check_torch, export

EPILOG = """
FACTORY is a function without arguments that returns the module, the loss and an example batch:

  def make():
      images, labels = torch.randn(32, 3, 32, 32), torch.zeros(32, dtype=torch.int64)
      return resnet18(num_classes=10), torch.nn.functional.cross_entropy, (images, labels)

  stoker-export my_model:make --output my_model/

The module is called with the first tensor of the batch, the loss with the module's output and the others.

Without a loss it returns the module, a batch {field: tensor} and the directions of metrics; forward() takes the fields by name and returns
{"loss": (sum, count), "losses": {…}, "metrics": {"accuracy": (sum, count)}, "logits": …}:

  def make():
      return Net(), {"input": torch.randn(32, 4), "label": torch.zeros(32, dtype=torch.int64)}, {"accuracy": "maximize"}
"""


def find_factory(name):
    module_name, _, function = name.partition(":")
    if not function:
        raise ExportError(f"{name}: expected MODULE:FUNCTION, for example my_model:make")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ExportError(f"{name}: {error}") from error
    if not hasattr(found, function):
        raise ExportError(f"{name}: {module_name} has no function {function}")
    return getattr(found, function)


def made_by(factory, name):
    try:
        return factory()
    except ExportError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        line = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno} ({frames[-1].name}): " if frames else ""
        raise ExportError(f"{line}{name} fails: {type(error).__name__}: {error}") from error


def parts_of(name, made):
    """(module, loss, batch, directions of metrics) of what a factory returned."""
    parts = made if isinstance(made, tuple) else (made,)
    if len(parts) in (2, 3) and isinstance(parts[1], collections.abc.Mapping):  # a step
        metrics = parts[2] if len(parts) == 3 else {}
        if isinstance(metrics, collections.abc.Mapping):
            return parts[0], None, parts[1], dict(metrics)
    if len(parts) != 3 or isinstance(parts[1], collections.abc.Mapping) or parts[1] is None:
        raise ExportError(f"{name} must return the module, the loss and an example batch; or of a module that returns its loss the module, a batch "
                          '{"input": tensor, …} and {"accuracy": "maximize", …}')
    return *parts, None


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="stoker-export", description="Exports a PyTorch module and its loss for stokerd: model: {name: exported, path: DIR}.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", metavar="MODULE:FUNCTION", help="returns (module, loss, example batch), or (module, {field: tensor}, {metric: direction})")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--config", metavar="FILE", help="compare the example batch with data.train of this configuration of stokerd first")
    parser.add_argument("--dynamic-length", action="store_true", help="sequences can be shorter than those of the example batch: padded batches are not extended")
    parser.add_argument("--stokerd", default="stokerd", metavar="PROGRAM", help="the program that reads it (default: stokerd)")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    options = parser.parse_args(arguments)
    # PyTorch's remarks about its own internals; errors are reported by ExportError.
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        _check_torch()
        logging.getLogger("torch").setLevel(logging.ERROR)  # which PyTorch sets when it is imported
        module, loss, batch, metrics = parts_of(options.factory, made_by(find_factory(options.factory), options.factory))
        if options.config:
            from .run_data import check_data
            check_data(module, loss, batch, options.config, options.stokerd)
        export(module, loss, batch, options.output, metrics=metrics, dynamic_length=options.dynamic_length, overwrite=options.overwrite,
               progress=lambda text: print(text, flush=True))
    except ExportError as error:
        print(f"stoker-export: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stoker-export: interrupted; nothing is written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
