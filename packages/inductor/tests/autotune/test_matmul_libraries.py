"""The faster library for products: asked for by name, or measured once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.autotune import Candidate, cpp_variants
from flambeau_inductor.autotune.cpp_variants import onednn_products

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
    monkeypatch.setattr(cpp_variants, "SECONDS", 1e4)  # out of time, nothing is kept
    cpp_variants._measured.cache_clear()
    first = onednn_products("measured", str(folder))
    cpp_variants._measured.cache_clear()

    def raced(sizes: object) -> object:
        raise AssertionError("measured again")

    monkeypatch.setattr(cpp_variants, "_product_libraries", raced)
    assert onednn_products("measured", str(folder)) is first
    cpp_variants._measured.cache_clear()


@needs_onednn
def test_autotuning_measures_each_size_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    raced: list[object] = []

    def candidates(sizes: tuple[int, int, int]) -> list[Candidate]:
        raced.append(sizes)
        return [Candidate(name, lambda: None) for name in ("blas", "onednn")]

    monkeypatch.setattr(cpp_variants, "_product_libraries", candidates)
    options = Options(max_autotune=True, autotune_seconds=1e4, cache_dir=str(folder))
    for _ in range(2):
        choices = cpp_variants.library_choices(options)
        assert choices.least_operations < cpp_variants.library_choices(Options()).least_operations
        for sizes in ((64, 64, 64), (128, 64, 32)):
            assert choices.onednn_products(sizes) in (False, True)
    assert raced == [(64, 64, 64), (128, 64, 32)]
    by_name = cpp_variants.library_choices(Options(max_autotune=True, products="onednn"))
    assert by_name.onednn_products((64, 64, 64))


def test_a_single_thread_asks_of_smaller_products_too() -> None:
    before = torch.get_num_threads()
    try:
        least = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            least.append(cpp_variants.library_choices(Options()).least_operations)
    finally:
        torch.set_num_threads(before)
    assert least[0] < least[1]
