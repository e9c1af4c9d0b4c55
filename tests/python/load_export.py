"""load_export.py FILE: the exported parameters of a run load into the Python module that was compiled, with no name
missing or left over, and both names of its tied weight are one tensor."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch
except ImportError:
    sys.exit(77)
from export_models import Mlp

module = Mlp()
state = torch.load(sys.argv[1], weights_only=True)
module.load_state_dict(state, strict=True)
assert module.decode.weight is module.encode.weight
assert torch.equal(state["encode.weight"], state["decode.weight"])
