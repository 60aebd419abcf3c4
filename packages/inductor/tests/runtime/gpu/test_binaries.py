"""Kernels as binaries: made with no GPU, loaded with no Triton, up to the calls of the driver."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from flambeau_inductor.cache import CacheStore
from flambeau_inductor.codegen.triton import build
from flambeau_inductor.kernels import kept_binaries
from flambeau_inductor.runtime.artifact import LOADERS
from flambeau_inductor.runtime.gpu.binaries import LIBRARY, MOST_SHARED, launchers_of
from flambeau_inductor.runtime.kernel_part import CannotLoad, KernelPart

from tests.runtime.gpu.driver import Driver
from tests.uninterpreted import run


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("binaries")
    module = "tests.runtime.gpu.make_binaries"
    found: dict[str, Any] = json.loads(run("-m", module, str(folder), "90").splitlines()[-1])
    return {**found, "store": CacheStore(folder / "store")}


@pytest.fixture
def made(both: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = both["made"]
    return found


@pytest.fixture
def part(made: dict[str, Any]) -> KernelPart:
    return part_of(made)


def part_of(made: dict[str, Any]) -> KernelPart:
    files = {name: Path(path) for name, path in made["files"].items()}
    return KernelPart(made["loader"], files, made["data"])


def addresses(kernel: dict[str, Any], start: int = 4096) -> list[int]:
    return [start + 256 * k for k in range(kernel["addresses"])]


def test_each_kernel_is_there_for_aligned_and_for_any_buffers(part: KernelPart) -> None:
    assert part.loader == "cubin" and part.data["capability"] == [9, 0]
    assert len(part.data["kernels"]) == 4 and LIBRARY in part.files
    for kernel in part.data["kernels"]:
        for variant in kernel["variants"].values():
            assert part.files[variant["file"]].read_bytes()[:4] == b"\x7fELF"
            assert variant["parameters"] >= kernel["addresses"] and variant["warps"] >= 1
        aligned, other = (part.files[v["file"]] for v in kernel["variants"].values())
        assert aligned.read_bytes() != other.read_bytes()
    assert any(kernel["descriptors"] for kernel in part.data["kernels"])


def test_the_native_part_launches_with_aligned_buffers(part: KernelPart) -> None:
    driver = Driver()
    functions, kept = launchers_of(part, driver)
    for kernel in part.data["kernels"]:
        driver.launched.clear()
        variant = kernel["variants"]["aligned"]
        functions[kernel["name"]](77, *addresses(kernel))
        ((how, function, grid, block, shared, stream, first),) = driver.launched
        image, name, asked = driver.loaded[function - 1001]
        assert image == part.files[variant["file"]].read_bytes()
        assert (name, asked) == (variant["name"], variant["shared"]) and asked == shared
        assert (how, grid, block, stream) == (
            "native", kernel["programs"], 32 * variant["warps"], 77
        )  # fmt: skip
        assert list(first) == addresses(kernel)[:2]
    described = [kernel for kernel in part.data["kernels"] if kernel["descriptors"]]
    assert len(driver.encoded) == sum(len(kernel["descriptors"]) for kernel in described) > 0
    assert any(shared > MOST_SHARED for _, _, shared in driver.loaded)
    assert kept


def test_other_buffers_get_the_other_binary(part: KernelPart) -> None:
    driver = Driver()
    functions, _kept = launchers_of(part, driver)
    for kernel in part.data["kernels"]:
        driver.launched.clear()
        given = addresses(kernel, 4098)
        functions[kernel["name"]](5, *given)
        ((how, function, grid, _, _, stream, values),) = driver.launched
        variant = kernel["variants"]["any"]
        assert driver.loaded[function - 1001][0] == part.files[variant["file"]].read_bytes()
        assert (how, grid, stream) == ("python", kernel["programs"], 5)
        assert list(values[: len(given)]) == given and len(values) == variant["parameters"]
        assert set(values[len(given) :]) <= {0}


def test_without_the_native_part_python_launches(part: KernelPart) -> None:
    files = {name: path for name, path in part.files.items() if name != LIBRARY}
    driver = Driver()
    functions, _kept = launchers_of(KernelPart(part.loader, files, part.data), driver)
    kernel = part.data["kernels"][0]
    functions[kernel["name"]](3, *addresses(kernel))
    ((how, *_, values),) = driver.launched
    assert how == "python" and list(values[: kernel["addresses"]]) == addresses(kernel)
    assert driver.loaded[0][0] == part.files[kernel["variants"]["aligned"]["file"]].read_bytes()


def test_another_gpu_is_refused(part: KernelPart, monkeypatch: pytest.MonkeyPatch) -> None:
    load = LOADERS["cubin"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CannotLoad, match=r"for a GPU of compute capability 9\.0"):
        load(part, 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda index: torch.no_grad())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.raises(CannotLoad, match=r"compute capability 9\.0, this GPU has 8\.0"):
        load(part, 0)


def test_what_was_built_once_is_kept(both: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start: aligned buffers by the binaries, others by what Triton compiles then."""
    part, driver, compiled = part_of(both["triton"]), Driver(), []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    found = kept_binaries.load(part, both["store"], driver)
    assert found is not None
    functions, _kept = found

    class Compiled:
        function, packed_metadata = 0x55, ()

        def run(self, *given: Any) -> None:
            compiled.append(given)

    def compile_unaligned(path: Path, kernel: Any) -> Compiled:
        assert path.read_text() == part.files["kernels.py"].read_text()
        return Compiled()

    monkeypatch.setattr(build, "compile_unaligned", compile_unaligned)
    for kernel in both["made"]["data"]["kernels"]:
        functions[kernel["name"]](77, *addresses(kernel))
        how, function, grid, block, _, stream, first = driver.launched[-1]
        variant = kernel["variants"]["aligned"]
        image = driver.loaded[function - 1001][0]
        assert image == Path(both["made"]["files"][variant["file"]]).read_bytes()
        assert (how, grid, block, stream) == (
            "native", kernel["programs"], 32 * variant["warps"], 77
        )  # fmt: skip
        assert list(first) == addresses(kernel)[:2] and not compiled
        functions[kernel["name"]](5, *addresses(kernel, 4098))
        (given,) = compiled
        assert given[:5] == (kernel["programs"], 1, 1, 5, 0x55)
        passed = given[9:]
        count = kernel["addresses"]
        assert list(passed[:count]) == addresses(kernel, 4098)
        (known,) = (k for k in part.data["kernels"] if k["name"] == kernel["name"])
        nones = len(kernel["descriptors"])
        assert passed[count : count + nones] == (None,) * nones
        assert passed[count + nones :] == tuple(value for _, value in known["constants"])
        compiled.clear()


@pytest.mark.parametrize("what", ["capability", "kernels", "text"])
def test_what_was_built_for_something_else_is_not_taken(
    both: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    part = part_of(both["triton"])
    capability = (8, 0) if what == "capability" else (9, 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    if what == "text":
        (tmp_path / "kernels.py").write_text(part.files["kernels.py"].read_text() + "\n# more\n")
        part = KernelPart("triton", {"kernels.py": tmp_path / "kernels.py"}, part.data)
    elif what == "kernels":
        first, *rest = part.data["kernels"]
        part = KernelPart(
            "triton", part.files, {"kernels": [{**first, "warps": first["warps"] * 2}, *rest]}
        )
    assert kept_binaries.load(part, both["store"], Driver()) is None


@pytest.mark.parametrize("kind", [80, 86, 89, 100])
def test_kernels_for_another_kind_of_gpu(both: dict[str, Any], kind: int) -> None:
    found = both["kinds"][str(kind)]
    for name in ("loop1", "middle") if kind < 90 else ("loop1", "middle", "described"):
        capability, *flags = found[name]
        assert tuple(capability) == divmod(kind, 10) and kind in flags
    if kind < 90:
        assert found["described"].startswith("described needs tensor descriptors, which no GPU of")


def test_a_kernel_for_a_gpu_with_less_shared_memory(both: dict[str, Any]) -> None:
    found = both["kinds"]["0"]
    assert isinstance(found["loop1"], list)
    assert (
        "KiB of shared memory for a program, which no GPU of compute capability 8.0 has"
        in (found["middle"])
    )


def test_loading_imports_nothing_of_the_compiler(made: dict[str, Any]) -> None:
    script = """
import json, sys
from pathlib import Path
from flambeau_inductor.runtime.kernel_part import KernelPart
from flambeau_inductor.runtime.gpu.binaries import launchers_of
from tests.runtime.gpu.driver import Driver
made = json.loads(sys.argv[1])
files = {name: Path(path) for name, path in made["files"].items()}
functions, kept = launchers_of(KernelPart(made["loader"], files, made["data"]), Driver())
assert len(functions) == 4
there = [name for name in ("triton", "sympy", "flambeau_prims", "flambeau_inductor.codegen",
         "flambeau_inductor.kernels.generate", "flambeau_inductor.ir") if name in sys.modules]
print(there)
"""
    assert run("-c", script, json.dumps(made)).strip() == "[]"


def test_a_kernel_just_compiled_is_loaded_without_a_launcher_of_tritons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Compiled:
        metadata = SimpleNamespace(name="kernel_3", shared=MOST_SHARED + 1, num_warps=4)
        asm: ClassVar = {"cubin": b"binary", "ptx": ""}
        packed_metadata = ()

        @property
        def run(self) -> Any:
            raise AssertionError("Triton compiles a launcher in C for this")

    driver = Driver()
    monkeypatch.setattr(build, "cuda_driver", lambda gpu: driver)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    kernel = build.Loadable(Compiled())
    assert kernel.function == kernel.function == 1001
    assert driver.loaded == [(b"binary", "kernel_3", MOST_SHARED + 1)]
