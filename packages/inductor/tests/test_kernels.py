"""Which code generator runs, what it refuses, what a build depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import CompilerFailed, CompilerNotFound, InductorError, Options
from flambeau_inductor.cache import processor
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode


def graph(inputs: list[torch.Tensor]) -> fx.GraphModule:
    def function(x: torch.Tensor) -> Any:
        return torch.sigmoid(x) * 3

    return flambeau_prims.lower(fx.symbolic_trace(function), inputs)


def test_no_compiler_is_one_sentence_that_names_what_to_install(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    x = torch.randn(5)
    with pytest.raises(CompilerNotFound, match=r"install.*g\+\+") as raised:
        flambeau_inductor.compile(graph([x]), [x])
    assert "\n" not in str(raised.value)


def test_a_graph_without_kernels_needs_no_compiler(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    x, y = torch.randn(5, 5), torch.randn(5, 5)
    gm = flambeau_prims.lower(fx.symbolic_trace(lambda x, y: x @ y), [x, y])
    torch.testing.assert_close(flambeau_inductor.compile(gm, [x, y])([x, y])[0], x @ y)


def test_a_compiler_that_fails_shows_what_it_said(tmp_path: Path):
    real = Path(tmp_path / "c++")
    real.write_text(
        '#!/bin/sh\ncase "$*" in *-c*) echo "broken on purpose" >&2; exit 1;; esac\nexec g++ "$@"\n'
    )
    real.chmod(0o755)
    x = torch.randn(5)
    options = Options(compiler=str(real), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(CompilerFailed, match="broken on purpose"):
        flambeau_inductor.compile(graph([x]), [x], options=options)
    left = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert left == []


def test_no_kernels_for_other_devices():
    with FakeTensorMode():
        x = torch.empty(5, device="mps")
    with pytest.raises(InductorError, match="no kernels are generated for mps"):
        flambeau_inductor.compile(graph([x]), [x])


def test_a_kernel_on_two_devices_is_refused():
    x, y = torch.randn(5), torch.randn(5, device="meta")
    made = fx.Graph()
    nodes = []
    for name, value in (("x", x), ("y", y)):
        nodes.append(made.placeholder(name))
        nodes[-1].meta["val"] = value
    added = made.call_function(torch.ops.flambeau_prims.add.default, tuple(nodes))
    added.meta["val"] = x
    made.output((added,))
    with pytest.raises(InductorError, match="cpu, meta"):
        flambeau_inductor.compile(fx.GraphModule(torch.nn.Module(), made), [x, y])


def test_the_processor_is_part_of_what_a_build_depends_on():
    assert processor() == processor()
    assert len(processor()) > 10
