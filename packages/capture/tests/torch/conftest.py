"""`agree(fn, *args, graphs=n)`: captured and eager agree in results, gradients and side effects."""

import copy

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree


def _leaves(tree):
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _parts(args):
    """What a call may read or change: tensors, and parameters and buffers of modules."""
    found = {}
    for place, leaf in enumerate(pytree.tree_leaves(args)):
        if isinstance(leaf, torch.Tensor):
            found[f"argument {place}"] = leaf
        elif isinstance(leaf, nn.Module):
            for name, tensor in [*leaf.named_parameters(), *leaf.named_buffers()]:
                found[f"argument {place}.{name}"] = tensor
    return found


@pytest.fixture
def agree(capture, backend, same):
    """Runs `fn` captured on one copy of the arguments and in eager on another, and compares.

    graphs: how many graphs are expected; None: any number but none. backward: whether to compare
    gradients as well.
    """

    def run(fn, *args, graphs=1, calls=2, backward=True, seed=0, **kwargs):
        backend.clear()
        compiled = capture(fn)
        ours, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        for call in range(calls):
            got = observe(compiled, *ours, backward, seed + call)
            expected = observe(fn, *theirs, backward, seed + call)
            for one, other, what in zip(got, expected, PARTS):
                same(one, other, what)
        if graphs is None:
            assert len(backend) >= 1, "nothing was captured"
        else:
            assert len(backend) == graphs, f"{len(backend)} graphs, not {graphs}"
        return compiled

    return run


PARTS = ("result", "gradients", "state", "random state")


def observe(fn, args, kwargs, backward, seed):
    for tensor in _parts((args, kwargs)).values():
        tensor.grad = None
    torch.manual_seed(seed)
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        return (type(error), str(error)), {}, {}, torch.get_rng_state()
    gradients = {}
    if backward:
        losses = [t.abs().double().square().sum() for t in _leaves(result) if t.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()
    for name, tensor in _parts((args, kwargs)).items():
        if tensor.is_leaf and tensor.grad is not None:
            gradients[name] = tensor.grad
    state = {name: tensor.detach() for name, tensor in _parts((args, kwargs)).items()}
    return result, gradients, state, torch.get_rng_state()


def x(*shape, grad=False):
    """A random tensor."""
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)
