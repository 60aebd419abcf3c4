"""Strides of fake results, against those that a CPU's kernels give: every operator that programs of
torch's own descriptions and their gradients call, by layout of what they are given."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
import torch
from flambeau_aot.joint.metadata.fake_metadata import FakeValues
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .check import LAYOUTS

PARTS = 48
PART = int(os.environ.get("FLAMBEAU_PART", "0"))  # another one: another part of all
NAMED = (
    "hardswish hardtanh logsigmoid relu leaky_relu threshold glu mse_loss smooth_l1_loss huber_loss"
    " batch_norm layer_norm channel_shuffle max_unpool2d multilabel_soft_margin_loss log_softmax"
)
OFTEN = {f"nn.functional.{name}" for name in NAMED.split()}
OFTEN |= {"copysign", "div", "floor_divide", "xlogy", "special.xlog1py", "logit", "__rmod__"}
OFTEN |= {"native_layer_norm", "native_dropout_backward", "native_batch_norm", "pow", "__rpow__"}


WITHOUT = {
    "one row": lambda x: LAYOUTS["reversed"](x)[:1] if x.numel() else x,
    "nothing": lambda x: x[:0],
    "nothing inside": lambda x: x[..., :0],
}
"""Layouts in which no stride leads along some dimension."""
APART = {"_unsafe_masked_index", "_fft_c2c"}
"""Operators whose strides along such a dimension are described otherwise; only others call them."""


def laid(x: torch.Tensor, layout: str, place: int) -> torch.Tensor:
    if layout == "first reversed":
        layout = "as they are" if place else "reversed"
    return (LAYOUTS | WITHOUT)[layout](x) if x.dim() or layout in LAYOUTS else x


def told(tree: Any) -> list[Any]:
    """Strides, those that lead to no element too."""
    return [x.stride() for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


class AlsoDescribed(TorchDispatchMode):
    """Every operator is described too; `wrong` tells where strides are not the kernel's."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.wrong: set[str] = set()
        self.compared = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if func._schema.is_mutable or "empty" in str(func) or drawn or not tensors:
            return result
        fakes = FakeValues()
        held = pytree.tree_map(
            lambda x: fakes.like(x.detach()) if isinstance(x, torch.Tensor) else x, (args, kwargs)
        )
        try:
            found = fakes.run(func, *held)
        except Exception:  # what depends on values has no description
            return result
        self.compared += 1
        if told(found) != told(result) and func._schema.name[6:] not in APART:
            given = [(tuple(x.shape), x.stride()) for x in tensors]
            self.wrong.add(f"{func} of {given}: {told(found)} for {told(result)}")
        return result


@pytest.mark.filterwarnings("ignore")
def test_descriptions_are_the_kernels() -> None:
    mode = AlsoDescribed()
    ops = [op for op in op_db if torch.float32 in op.dtypes and op.supports_autograd]
    plain = [op for op in ops if not op.name.startswith(("fft", "linalg", "masked"))]
    for op in [op for n, op in enumerate(plain) if n % PARTS == PART or op.name in OFTEN]:
        torch.manual_seed(0)
        samples = list(itertools.islice(op.sample_inputs("cpu", torch.float32), 6))[::3]
        for sample, layout in itertools.product(
            samples, ("as they are", "channels last", "reversed", "first reversed", *WITHOUT)
        ):
            flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            places = itertools.count()
            flat = [
                laid(x.detach(), layout, next(places)) if isinstance(x, torch.Tensor) else x
                for x in flat
            ]
            leaves = [x for x in flat if isinstance(x, torch.Tensor) and x.is_floating_point()]
            first, rest, named = pytree.tree_unflatten(flat, spec)
            try:
                with mode:
                    for leaf in leaves:
                        leaf.requires_grad_()
                    results = pytree.tree_leaves(op.op(first, *rest, **named))
                    ends = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
                    for turned in ("as they are", "reversed"):
                        weights = [laid(torch.ones_like(x), turned, 0) for x in ends]
                        torch.autograd.grad(
                            ends, leaves, weights, allow_unused=True, retain_graph=True
                        )
            except (RuntimeError, ValueError, NotImplementedError, IndexError):
                continue  # eager refuses the sample
    assert sorted(mode.wrong) == []
    assert mode.compared > 500
