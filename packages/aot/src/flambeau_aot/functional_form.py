"""Users' operators that write to their arguments, in a form that does not.

What comes in: an operator whose schema marks arguments as written to. What goes out: an operator
that takes the same arguments and returns, after the operator's own results, the new values of
the arguments that it would have written to.
Invariant: the new operator runs the old one on clones; it is registered once in torch's
dispatcher, under a name that is made of the old one's.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import is_custom_op, is_operator, is_operator_packet
from flambeau_aot.errors import Unsupported

NAMESPACE = "flambeau_aot_functional"
_TORCH_OWN = ("aten", "prims", "prim", "quantized", "mkldnn", "c10d", "_c10d_functional", NAMESPACE)


def writing_operator(func: Any) -> Any:
    """The overload of a user's operator that writes to arguments, None for anything else."""
    if is_operator_packet(func):
        if len(func.overloads()) != 1:
            return None
        func = getattr(func, func.overloads()[0])
    if not is_operator(func) or func.namespace in _TORCH_OWN or not func._schema.is_mutable:
        return None
    return func


def call_without_writing(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the functional form, then write its new values as ordinary copies."""
    written = _written(func)
    given = dict(kwargs)
    for argument, value in zip(func._schema.arguments, args, strict=False):
        given[argument.name] = value
    tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if recorded and (func._schema.returns or not is_custom_op(func)):
        # What `custom_op` makes writes beside autograd, as the copies below do.
        raise Unsupported(
            f"{func} writes to an argument and is given a tensor that requires grad; "
            "call it under torch.no_grad(), or give it a form that returns the new value"
        )
    with torch.no_grad():
        results = functional_form(func)(*args, **kwargs)
        results = results if isinstance(results, (tuple, list)) else (results,)
        own, new = results[: len(results) - len(written)], results[len(results) - len(written) :]
        for name, value in zip(written, new, strict=True):
            if given.get(name) is not None:
                given[name].copy_(value)
    return own[0] if len(own) == 1 else (tuple(own) if own else None)


def functional_form(func: Any) -> Any:
    """The operator that returns what `func` writes."""
    name = f"{func._schema.name}_{func._schema.overload_name}".replace("::", "_").rstrip("_")
    name = name.replace(".", "_")
    known = getattr(getattr(torch.ops, NAMESPACE), name, None)
    if known is not None:
        return known.default
    written = _written(func)
    schema = func._schema
    if any(result.alias_info is not None for result in schema.returns):
        raise Unsupported(f"{func} returns an argument that it writes to; let it return nothing")
    parts: list[str] = []
    keyword_only = False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword_only:
            parts.append("*")
            keyword_only = True
        default = f"={argument.default_value!r}" if argument.has_default_value() else ""
        parts.append(f"{_type(argument)} {argument.name}{default}")
    results = [str(result.type) for result in schema.returns] + ["Tensor"] * len(written)
    qualified = f"{NAMESPACE}::{name}"
    torch.library.define(qualified, f"({', '.join(parts)}) -> ({', '.join(results)})")

    def run(*args: Any, **kwargs: Any) -> Any:
        bound = dict(kwargs)
        names = [argument.name for argument in schema.arguments]
        bound.update(zip(names, args, strict=False))
        for target in written:
            if bound.get(target) is not None:
                bound[target] = bound[target].clone()
        own = func(**bound)
        own = () if own is None else own if isinstance(own, tuple) else (own,)
        values = (*own, *(bound[target] for target in written))
        return values[0] if len(values) == 1 else values

    torch.library.impl(qualified, "CompositeExplicitAutograd", run)
    torch.library.register_fake(qualified, run)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _written(func: Any) -> list[str]:
    names: list[str] = []
    for argument in func._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            if str(argument.type) != "Tensor":
                raise Unsupported(
                    f"{func} writes to its argument {argument.name} of type {argument.type}; "
                    "only single tensors are supported"
                )
            names.append(argument.name)
    return names


def _type(argument: Any) -> str:
    """A schema's spelling of an argument's type."""
    text = str(argument.real_type)
    if text.startswith("Optional["):
        return f"{text[len('Optional[') : -1]}?"
    if text.startswith("List["):
        return f"{text[len('List[') : -1]}[]"
    return text
