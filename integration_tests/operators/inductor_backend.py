"""The inductor as a backend for the conformance kit: `inductor_backend:backend`.

In: a graph of primitives and its inputs. Out: a function of tensors.
Invariant: nothing but the calling convention is adapted; a call that the inductor hands to a
library is the inductor's choice and is judged as its result.
"""

from __future__ import annotations

from collections.abc import Callable

import flambeau_inductor
from flambeau_prims.conformance import Declaration
from torch import Tensor, fx


def backend(gm: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., list[Tensor]]:
    """Compile `gm`; the boxed function takes a list that it empties."""
    compiled = flambeau_inductor.compile(gm, inputs)
    return lambda *tensors: compiled(list(tensors))


# An attribute, which a plain function's type does not know.
vars(backend)["declares"] = Declaration(
    prims={"copy_": "graphs are functional; whoever calls them copies to the inputs"}
)
