"""Fixtures of the tests of capture. Only fixtures import torch: some tests run without it."""

import os

import pytest

os.environ.setdefault("FLAMBEAU_FAULTS", "raise")  # no test passes by falling back from a fault


class Counting:
    """A backend that keeps the graphs it is given and runs them with torch as it is."""

    def __init__(self):
        self.graphs = []
        self.inputs = []

    def __call__(self, module, example_inputs):
        self.graphs.append(module)
        self.inputs.append(list(example_inputs))
        return module.forward

    def clear(self):
        self.graphs.clear()
        self.inputs.clear()

    def __len__(self):
        return len(self.graphs)

    def operations(self, index=-1):
        """Targets of a graph's calls, in order."""
        return [
            node.target
            for node in self.graphs[index].graph.nodes
            if node.op in ("call_function", "call_method")
        ]


@pytest.fixture
def backend():
    return Counting()


@pytest.fixture
def capture(backend):
    """`capture(fn)` compiles for the counting backend; a fault of capture fails the test."""
    from flambeau_capture import optimize

    def decorate(fn, **choices):
        return optimize(backend, raise_internal_errors=True, **choices)(fn)

    return decorate


@pytest.fixture
def same():
    """Two results are alike: structure, classes, tensors bit for bit, requires_grad."""
    import torch

    def check(ours, theirs, path="result"):
        assert type(ours) is type(theirs), f"{path}: {type(ours)} is not {type(theirs)}"
        if isinstance(ours, torch.Tensor):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, path
            assert ours.requires_grad == theirs.requires_grad, path
            assert torch.equal(ours, theirs) or torch.allclose(ours, theirs, equal_nan=True), path
        elif isinstance(ours, dict):
            assert list(ours) == list(theirs), path
            for key in ours:
                check(ours[key], theirs[key], f"{path}[{key!r}]")
        elif isinstance(ours, (list, tuple)):
            assert len(ours) == len(theirs), path
            for index, (one, other) in enumerate(zip(ours, theirs)):
                check(one, other, f"{path}[{index}]")
        else:
            assert ours == theirs, path

    return check
