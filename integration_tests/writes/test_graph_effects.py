"""What the dispatcher says of a call is what the call does, for every operation that torch's
database has samples of: it draws where a generator moves on, it writes where an argument changes.
"""

import warnings

import torch
from flambeau_capture import _torch_compat as compat
from flambeau_capture.graph.operator_effects import GraphEffects
from flambeau_prims.sweep import database
from torch.utils import _pytree as pytree

DRAWS = "draws random numbers"


def faults_of(form, sample):
    """What is told wrongly of one call; None where it does not run."""
    args = (sample.input, *sample.args)
    leaves = pytree.tree_leaves([args, sample.kwargs])
    given = [t for t in leaves if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    effects, state = GraphEffects(), torch.get_rng_state()
    before = [(t._version, t.detach().clone()) for t in given]
    try:
        with compat.Watching(effects.see):
            form(*args, **sample.kwargs)
    except (RuntimeError, NotImplementedError, TypeError, AssertionError):
        return None  # a kernel that is not in this build, or a write that is not allowed
    now = [(t._version, t.detach()) for t in given]
    wrote = any(v != w or not torch.equal(t, u) for (v, t), (w, u) in zip(before, now))
    drew = not torch.equal(torch.get_rng_state(), state)
    found = ["draws unseen"] if drew and DRAWS not in effects.other else []
    return found + (["writes unseen"] if wrote and not effects.writes_to(given) else [])


def test_every_operation():
    wrong, asked = {}, 0
    for name, entry in database.by_name().items():
        if torch.float32 not in entry.dtypes:
            continue
        samples = entry.sample_inputs_func(entry, "cpu", torch.float32, False)
        sample = next(iter(samples))  # as they are: the entry's own way looks at the stack for each
        for form in filter(None, (entry.op, entry.inplace_variant)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = faults_of(form, sample)
            asked += found is not None
            if found:
                wrong[name] = found
    assert not wrong and asked > 500
