"""Exports a PyTorch module and its loss for stokerd; see export()."""

TORCH_VERSION = "2.11.0"  # the LibTorch that stokerd links


class ExportError(Exception):
    """The module cannot be exported: one line with what to change."""


def _check_torch():
    advice = f"pip install torch=={TORCH_VERSION}"
    try:
        import torch
    except ImportError:
        raise ExportError(f"PyTorch is not installed: {advice}") from None
    if torch.__version__.split("+")[0] != TORCH_VERSION:
        raise ExportError(f"PyTorch {torch.__version__} is installed, stokerd uses {TORCH_VERSION}: {advice}")


def export(module, loss, example_batch, path, **options):
    """Writes the folder `path` for model.name exported, see exporter.export()."""
    _check_torch()
    from . import exporter
    return exporter.export(module, loss, example_batch, path, **options)
