"""A complete backend in NumPy: a graph of primitives in, a function of tensors out.

Between primitives a value is an array in the strides that the graph promises for it.
"""
# ruff: noqa: ANN001, ANN201

import operator

from flambeau_prims import prim_of, verify
from flambeau_prims.sizes import SIZE_OF
from torch import fx

from numpy_backend import arrays, library, moves, pointwise, rows, sampling, windows

TABLES = (pointwise, moves, windows, library, rows, sampling)
FUNCTIONS = {name: f for table in TABLES for name, f in table.FUNCTIONS.items()}
TYPED = {"bitcast", "nextafter"}  # what looks at bits must know the dtype that an array stands for


def backend(gm, inputs):
    """The function that computes `gm`; unknown primitives are an error now, not at run time."""
    prims = [prim_of(node.target) for node in gm.graph.nodes]
    missing = sorted(verify(gm, leaves=False))
    missing += sorted(prim.name for prim in prims if prim and prim.name not in FUNCTIONS)
    if missing:
        raise NotImplementedError(f"not in this backend: {', '.join(missing)}")
    return lambda *tensors: run(gm, tensors)


def run(gm, tensors):
    """Walk the graph once."""
    remaining, given, env = iter(tensors), {}, {}
    for node in gm.graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.get)
        prim = prim_of(node.target)
        if node.op == "placeholder":
            given[node] = next(remaining)
            env[node] = arrays.from_torch(given[node])
        elif node.op == "get_attr":
            env[node] = arrays.from_torch(operator.attrgetter(node.target)(gm))
        elif node.op == "output":
            return tuple(arrays.to_torch(env[n], n.meta["val"].dtype) for n in node.args[0])
        elif node.target is operator.getitem:
            env[node] = args[0][args[1]]
        elif prim is None:  # a symbolic size: read off an array, or arithmetic
            env[node] = args[0].shape[args[1]] if node.target is SIZE_OF else node.target(*args)
        elif prim.name == "copy_":  # the one that writes: into the caller's tensor
            target = given[node.args[0]]
            env[node] = arrays.from_torch(target.copy_(arrays.to_torch(args[1], target.dtype)))
        else:
            promise = node.meta["val"]
            if arrays.is_symbolic(promise) and "data_dependent" not in prim.tags:
                promise = arrays.promise_of(prim, node, args, kwargs)
            if prim.name in TYPED:
                kwargs = {**kwargs, "source": node.args[0].meta["val"].dtype}
            env[node] = arrays.stored(FUNCTIONS[prim.name](*args, **kwargs), promise)
    raise ValueError("the graph has no output")
