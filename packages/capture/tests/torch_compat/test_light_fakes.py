"""The fake mode that does not load torch's compiler gives what torch's own gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from flambeau_capture._torch_compat.light_fakes import compiler_names_read, is_answered

COMPARED = """
import sys
import torch
from torch.nn import functional as F
from flambeau_capture._torch_compat import new_fake_mode, to_fake

base = torch.randn(4, 6)
leaf = torch.randn(3, 4, requires_grad=True)
with_grad = torch.randn(2, requires_grad=True)
with_grad.sum().backward()
GIVEN = {
    "plain": torch.randn(2, 3),
    "strided": torch.randn(2, 3).t(),
    "view": base[1:3],
    "base": base,
    "leaf": leaf,
    "result": leaf * 2,
    "with a gradient": with_grad,
    "parameter": torch.nn.Parameter(torch.randn(5)),
    "number": torch.tensor(3),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "half": torch.randn(2, 2).half(),
    "empty": torch.empty(0, 3),
}
CALLS = {
    "softmax": lambda x: torch.softmax(x["plain"], -1),
    "product": lambda x: x["plain"] @ x["strided"],
    "linear": lambda x: F.linear(x["plain"], torch.empty(4, 3)),
    "convolution": lambda x: F.conv1d(x["leaf"][None], torch.empty(2, 3, 2)),
    "attention": lambda x: F.scaled_dot_product_attention(*[torch.empty(1, 2, 4, 8)] * 3),
    "cat": lambda x: torch.cat([x["plain"], x["empty"]]),
    "sort": lambda x: torch.sort(x["base"], 0)[1],
    "in place": lambda x: x["view"].mul_(2),
    "indexed": lambda x: x["base"][torch.zeros(2, 2, dtype=torch.long)],
    "mean": lambda x: x["half"].mean(dtype=torch.float64),
    "normalised": lambda x: F.layer_norm(x["result"], (4,)),
    "of another device": lambda x: torch.empty(3, device="cuda"),
}


def told(tensor):
    facts = [tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device]
    facts += [tensor.requires_grad, tensor.is_leaf, tensor._is_view(), tensor.is_conj()]
    return (*facts, isinstance(tensor, torch.nn.Parameter), tensor._version)


def seen(mode):
    fakes = {name: to_fake(mode, tensor) for name, tensor in GIVEN.items()}
    facts = {name: told(fake) for name, fake in fakes.items()}
    assert fakes["view"]._base is fakes["base"]
    assert to_fake(mode, base) is fakes["base"]
    with mode:
        facts |= {name: told(call(fakes)) for name, call in CALLS.items()}
    return facts


light = new_fake_mode()
assert "LightFakeMode" in [each.__name__ for each in type(light).__mro__], type(light)
first = seen(light)
loaded = [name for name in sys.modules if name.startswith("torch._dynamo")]
assert not loaded, loaded
from torch._subclasses.fake_tensor import FakeTensorMode

second = seen(FakeTensorMode())
assert len(first) == len(GIVEN) + len(CALLS)
for name in first:
    assert first[name] == second[name], (name, first[name], second[name])
own = type(new_fake_mode()).__mro__
assert "torch._dynamo" in sys.modules and FakeTensorMode in own, own
assert "LightFakeMode" not in [each.__name__ for each in own], own
print("same")
"""

OPEN = """
import sys
import torch
import flambeau_capture

seen = []

def backend(gm, inputs):
    seen.append([node.meta["val"].shape for node in gm.graph.nodes if node.op == "placeholder"
                 and isinstance(node.meta["val"], torch.Tensor)])
    return gm.forward

backend.supports_symbols = True

def fn(x):
    return torch.softmax(x, -1) * x.shape[0]

fixed = flambeau_capture.compile(fn, backend=backend)
x = torch.randn(4, 3)
given = fixed(x)
assert "torch.distributed.tensor" not in sys.modules
torch.testing.assert_close(given, fn(x))
assert "torch._dynamo" not in sys.modules
free = flambeau_capture.compile(fn, backend=backend, dynamic=True)
for rows in (5, 7, 9):
    x = torch.randn(rows, 3)
    torch.testing.assert_close(free(x), fn(x))
assert len(seen) == 2 and any(isinstance(size, torch.SymInt) for size in seen[1][0]), seen
print("same")
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_it_gives_what_torchs_own_mode_gives() -> None:
    assert run(COMPARED) == "same"


def test_fixed_sizes_do_not_load_the_compiler_and_open_ones_still_work() -> None:
    assert run(OPEN) == "same"


def imports(torch: Any) -> Any:
    import torch._dynamo.config
    from torch._dynamo.source import AttrSource, ConstantSource

    return torch._dynamo.config.fake_tensor_cache_enabled, AttrSource, ConstantSource


def reads_inside(torch: Any) -> Any:
    def inside() -> Any:
        return torch._dynamo.source.EphemeralSource("x")

    return inside


def test_what_a_method_asks_is_found_in_its_code() -> None:
    assert set(compiler_names_read(imports.__code__)) == {
        "config.",
        "config.fake_tensor_cache_enabled",
        "source.AttrSource",
        "source.ConstantSource",
    }
    assert set(compiler_names_read(reads_inside.__code__)) == {"source.EphemeralSource"}
    assert is_answered(imports.__code__) and is_answered(reads_inside.__code__)


def another_setting(torch: Any) -> Any:
    return torch._dynamo.config.suppress_errors


def another_module(torch: Any) -> Any:
    import torch._dynamo.eval_frame

    return torch


def another_name(torch: Any) -> Any:
    def inside() -> Any:
        from torch._dynamo.source import AttrSource, GlobalSource

        return AttrSource, GlobalSource

    return inside


def the_whole(torch: Any) -> Any:
    return torch._dynamo


@pytest.mark.parametrize("method", [another_setting, another_module, another_name, the_whole])
def test_a_method_that_asks_for_more_is_not_answered(method: Callable[..., Any]) -> None:
    assert not is_answered(method.__code__)


def test_a_method_of_many_names_is_read_as_a_short_one() -> None:
    many = "\n".join(f"    torch.name_{number}" for number in range(400))
    text = f"def method(torch):\n{many}\n    return torch._dynamo.config.suppress_errors\n"
    found: dict[str, Any] = {}
    exec(text, found)
    assert set(compiler_names_read(found["method"].__code__)) == {"config.suppress_errors"}
