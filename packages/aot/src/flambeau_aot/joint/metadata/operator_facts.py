"""Facts of a call: hidden writes, numbers in the place of tensors, dtypes that eager refuses.

In: an operator and its arguments. Out: yes or no. Invariant: nothing is run or recorded.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import FakeTensor, is_view_op
from flambeau_aot.intercept.eager_dtypes import refusal_by_eager
from flambeau_aot.joint.nested import tensors_in

# Their CPU kernels write running statistics that the schema does not mark as written.
HIDDEN_WRITES: dict[str, tuple[int, int]] = {
    "aten::native_batch_norm": (3, 5),
    "aten::cudnn_batch_norm": (3, 5),
    "aten::miopen_batch_norm": (3, 5),
}


def is_of_numbers_alone(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator on tensors is given numbers of Python's in place of all of them."""
    if tensors_in((args, kwargs)):
        return False
    given = zip(func._schema.arguments, args, strict=False)
    return any(type(x) in (int, float, bool, complex) and str(a.type) == "Tensor" for a, x in given)


CHECKED = frozenset({torch.Tag.core, torch.Tag.pointwise})
"""Tags of operators whose kernels check their numbers against their tensors."""


def is_refused_by_eager(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether eager's kernel refuses dtypes that a decomposition may take: it is recorded whole."""
    if is_view_op(func) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    return bool(refusal_by_eager(func, args, kwargs))


def is_real_number(literal: Any) -> bool:
    """Whether a tensor that the program makes of Python's numbers is one real number."""
    return (
        not isinstance(literal, FakeTensor)
        and literal.dim() == 0
        and literal.layout == torch.strided
        and literal.device.type == "cpu"
        and not literal.is_complex()
        and not literal.is_quantized
    )
