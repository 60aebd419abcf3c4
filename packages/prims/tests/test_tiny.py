"""A few seconds: the package imports cheaply and does its one thing."""

import subprocess
import sys

import flambeau_prims
import torch
from torch import fx


def test_smoke():
    a = torch.randn(3)
    lowered = flambeau_prims.lower(fx.symbolic_trace(lambda x: (torch.nn.functional.silu(x),)), [a])
    assert flambeau_prims.verify(lowered, leaves=False) == {}
    torch.testing.assert_close(lowered(a)[0], torch.nn.functional.silu(a))


def test_import_brings_in_no_compile_stack():
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "import flambeau_prims; flambeau_prims.decompositions()\n"
        "new = set(sys.modules) - before\n"
        "bad = ('torch._dynamo', 'torch._inductor', 'torch._functorch', 'torch._decomp',"
        " 'torch._refs', 'torch._prims', 'sympy', 'triton')\n"
        "print([m for m in new if m.startswith(bad)])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]", out.stdout
