"""stoker: a training daemon with a separate evaluator. Its programs are in bin/ of this folder."""
