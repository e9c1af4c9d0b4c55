"""load_export.py FILE FACTORY FIRST SECOND: the exported parameters of a run load into the module of export_models.FACTORY,
with no name missing or left over, both names of its tied weight are one tensor, and training has updated the
statistics of batch norm."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch
except ImportError:
    sys.exit(77)
import export_models

path, factory, first, second = sys.argv[1:]
module, _, _ = getattr(export_models, factory)()
state = torch.load(path, weights_only=True)
module.load_state_dict(state, strict=True)
assert module.get_parameter(first) is module.get_parameter(second)
assert torch.equal(state[first], state[second])
assert not any((value == 1).all() for name, value in state.items() if name.endswith("running_var"))
