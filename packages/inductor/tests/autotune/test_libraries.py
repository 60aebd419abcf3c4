"""The faster library for products: asked for by name, or measured once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.autotune import libraries
from flambeau_inductor.autotune.libraries import onednn_products

needs_onednn = pytest.mark.skipif(onednn_linear() is None, reason="torch without oneDNN")


@needs_onednn
def test_a_library_by_name() -> None:
    assert onednn_products("onednn", None)
    assert not onednn_products("blas", None)


def test_a_library_that_is_switched_off_is_not_taken() -> None:
    with torch.backends.mkldnn.flags(enabled=False):  # type: ignore[no-untyped-call]
        assert not onednn_products("onednn", None)


@needs_onednn
def test_the_measurement_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    libraries._measured.cache_clear()
    first = onednn_products("measured", str(folder))
    libraries._measured.cache_clear()

    def raced() -> object:
        raise AssertionError("measured again")

    monkeypatch.setattr(libraries, "_candidates", raced)
    assert onednn_products("measured", str(folder)) is first
    libraries._measured.cache_clear()
