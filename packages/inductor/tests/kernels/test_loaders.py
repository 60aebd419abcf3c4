"""Where the kernels of an artifact come from: what is kept is asked once, then they are built."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.kernels import loaders, triton_build
from flambeau_inductor.runtime.kernel_part import KernelPart


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_kept_binaries_are_looked_for_once(
    there: bool, kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def load(part: KernelPart, store: Any) -> Any:
        asked.append("looked")
        return ({"kernel0": 1}, ()) if there else None

    def build(part: KernelPart, gpu: int | None, options: Options) -> Any:
        asked.append("built")
        return {"kernel0": 2}, ()

    monkeypatch.setattr(loaders, "load", load)
    monkeypatch.setattr(triton_build, "build_triton", build)
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    tmp_path.chmod(0o700)
    options = Options(kept_binaries=kept, cache_dir=str(tmp_path))
    found, _ = loaders.loaders(options)["triton"](KernelPart("triton", {}, {}), 0)
    assert asked == ["looked"] * kept + ["built"] * (not (kept and there))
    assert found == {"kernel0": 1 if kept and there else 2}
