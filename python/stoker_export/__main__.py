"""Command line of stoker_export."""
import argparse
import importlib
import logging
import os
import sys
import warnings

from . import ExportError, _check_torch, export

EPILOG = """
FACTORY is a function without arguments that returns the module, the loss and an example batch:

  def make():
      images, labels = torch.randn(32, 3, 32, 32), torch.zeros(32, dtype=torch.int64)
      return resnet18(num_classes=10), torch.nn.functional.cross_entropy, (images, labels)

  stoker-export my_model:make --output my_model/

The module is called with the first tensor of the batch, the loss with the module's output and the others.
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


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="stoker-export", description="Exports a PyTorch module and its loss for stokerd: model: {name: exported, path: DIR}.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", metavar="MODULE:FUNCTION", help="returns (module, loss, example batch)")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing folder")
    options = parser.parse_args(arguments)
    # PyTorch's remarks about its own internals; errors are reported by ExportError.
    warnings.simplefilter("ignore")
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        _check_torch()
        logging.getLogger("torch").setLevel(logging.ERROR)  # which PyTorch sets when it is imported
        made = find_factory(options.factory)()
        if not isinstance(made, tuple) or len(made) != 3:
            raise ExportError(f"{options.factory} must return the module, the loss and an example batch")
        export(*made, options.output, overwrite=options.overwrite, progress=lambda text: print(text, flush=True))
    except ExportError as error:
        print(f"stoker-export: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stoker-export: interrupted; nothing is written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
