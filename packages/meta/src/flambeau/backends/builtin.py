"""Built-in backends: constructors, requirements, availability.

In: nothing. Out: `TABLE`. Invariant: asking whether a package is here does not import it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from flambeau.backends import autotune, composed, entry_points, onnx, torchscript
from flambeau.backends.request import Backend, Factory, Request, Traits
from flambeau.errors import BackendMissing


@dataclass(frozen=True)
class Need:
    """What a backend needs beside torch, in words, and the test for it."""

    text: str
    met: Callable[[], bool]


def packages(*modules: str, pip: str) -> Need:
    """Modules that must be importable; `pip`: how they are had."""
    return Need(
        f"the package {' and '.join(modules)} (`pip install {pip}`)",
        lambda: all(find_spec(module) is not None for module in modules),
    )


NOTHING = Need("", lambda: True)
CUDA = Need("a CUDA device", torch.cuda.is_available)


@dataclass(frozen=True)
class BuiltinBackend:
    """A built-in backend."""

    about: str
    make: Factory
    traits: Traits
    need: Need = NOTHING

    def backend(self, name: str, request: Request) -> Backend:
        """The backend; raises BackendMissing when what it needs is not here."""
        if not self.need.met():
            raise BackendMissing(name, self.need.text)
        return self.make(request)


#: numbers that are not integers are constants to ahead-of-time autograd and what is behind it
INTEGERS = frozenset({"sizes", "integers", "floats"})

AOT = Traits(INTEGERS, "aot")

TABLE: dict[str, BuiltinBackend] = {
    "eager": BuiltinBackend(
        "the captured graph as it is", composed.eager, Traits(True, divided=False)
    ),
    "aot_eager": BuiltinBackend(
        "forward and backward ahead of time, operator by operator",
        composed.aot_eager,
        AOT,
    ),
    "aot_nop": BuiltinBackend("another name of aot_eager", composed.aot_eager, AOT),
    "aot_eager_prims": BuiltinBackend("the same in primitives", composed.aot_eager_prims, AOT),
    "inductor": BuiltinBackend(
        "fused C++ and Triton kernels", composed.inductor, Traits(INTEGERS, "aot", kernels=True)
    ),
    "autotune": BuiltinBackend(
        "each graph as whichever of eager, aot_eager and inductor runs it fastest",
        autotune.autotune,
        Traits(),
    ),
    "cudagraphs": BuiltinBackend(
        "aot_eager, recorded and replayed as CUDA graphs",
        composed.cudagraphs,
        Traits(stage="aot"),
        CUDA,
    ),
    "ts": BuiltinBackend("TorchScript", torchscript.ts, Traits(stage="ts")),
    "ofi": BuiltinBackend(
        "TorchScript, frozen and folded for inference", torchscript.ofi, Traits(stage="ofi")
    ),
    "nvfuser": BuiltinBackend(
        "TorchScript with nvFuser",
        torchscript.nvfuser,
        Traits(stage="nvfuser"),
        packages("nvfuser", pip="nvfuser-cu12-torch28"),
    ),
    "onnxrt": BuiltinBackend(
        "ONNX Runtime, inference",
        onnx.onnxrt,
        Traits(stage="onnxrt"),
        packages("onnxruntime", "onnx", pip="onnxruntime onnx"),
    ),
    "tensorrt": BuiltinBackend(
        "Torch-TensorRT",
        entry_points.tensorrt,
        Traits(stage="tensorrt"),
        packages("torch_tensorrt", pip="torch-tensorrt"),
    ),
    "openxla": BuiltinBackend(
        "PyTorch/XLA",
        entry_points.openxla,
        Traits(stage="openxla"),
        packages("torch_xla", pip="torch_xla"),
    ),
    "ipex": BuiltinBackend(
        "Intel Extension for PyTorch, inference",
        entry_points.ipex,
        Traits(stage="ipex"),
        packages("intel_extension_for_pytorch", pip="intel-extension-for-pytorch"),
    ),
}
