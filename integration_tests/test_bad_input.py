"""What goes wrong outside of the program must not go wrong inside of it."""

import os
import subprocess
import sys
import textwrap
import traceback
import warnings

import pytest
import torch

import flambeau


def program(x):
    y = torch.cos(x)
    return y * 2 + 1


def run(code, **environment):
    """A process of its own, so that nothing is compiled or cached yet."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


RIGHT = """
    import torch, flambeau
    def program(x):
        return (torch.cos(x) * 2 + 1).sum(-1)
    x = torch.randn(8, 50)
    compiled = flambeau.compile(program)
    torch.testing.assert_close(compiled(x), program(x))
    print("graphs that fell back:", len(flambeau.report(compiled).fallbacks))
"""


def test_no_compiler_on_the_machine(tmp_path):
    done = run(RIGHT, PATH=str(tmp_path), CXX="", FLAMBEAU_CACHE_DIR=str(tmp_path / "kernels"))
    assert "graphs that fell back: 1" in done.stdout
    (said,) = [line for line in done.stderr.splitlines() if "CompilerNotFound" in line]
    assert "install" in said
    assert "Traceback" not in done.stderr


COMPILERS = {
    "crashing": ("kill -SEGV $$", "SIGSEGV"),
    "killed": ("kill -KILL $$", "SIGKILL"),
    "too old": ("echo \"unrecognized option '-std=c++17'\" >&2; exit 1", "unrecognized option"),
}


@pytest.mark.usefixtures("falls_back")
@pytest.mark.parametrize("fault", COMPILERS)
def test_a_compiler_that_is(fault, tmp_path):
    body, said = COMPILERS[fault]
    script = tmp_path / "c++"
    script.write_text(f'#!/bin/sh\ncase "$*" in *-dM*) exec c++ "$@";; esac\n{body}\n')
    script.chmod(0o755)
    done = run(RIGHT, CXX=str(script), FLAMBEAU_CACHE_DIR=str(tmp_path / "kernels"))
    assert "graphs that fell back: 1" in done.stdout
    assert "CompilerFailed" in done.stderr and said in done.stderr
    assert "Traceback" not in done.stderr


def test_kernels_that_somebody_tampered_with_are_built_again(tmp_path):
    kernels = tmp_path / "kernels"
    run(RIGHT, FLAMBEAU_CACHE_DIR=str(kernels))
    libraries = list(kernels.rglob("kernels.so"))
    assert libraries
    for number, library in enumerate(libraries):
        whole = library.read_bytes()
        library.chmod(0o600)
        library.write_bytes(whole[:100] if number else whole[:-8] + b"tampered")
    done = run(RIGHT, FLAMBEAU_CACHE_DIR=str(kernels))
    assert "graphs that fell back: 0" in done.stdout
    assert all(b"tampered" not in library.read_bytes() for library in libraries)


def _shapes():
    torch.manual_seed(0)
    return {
        "0-d": torch.randn(()),
        "no rows": torch.randn(0, 7),
        "no columns": torch.randn(7, 0),
        "every other": torch.randn(9, 14)[:, ::2],
        "turned": torch.randn(7, 9).t(),
        "repeated": torch.randn(1, 7).expand(9, 7),
        "overlapping": torch.randn(30).as_strided((9, 7), (2, 1)),
    }


@pytest.mark.parametrize("name", _shapes())
def test_odd_tensors_go_through_all_of_it(name):
    def program(x):
        y = torch.tanh(x) * 3 + x.sum()
        return y.exp(), y.reshape(-1)

    x = _shapes()[name]
    for got, want in zip(flambeau.compile(program)(x), program(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_writes_to_memory_that_overlaps_raise_what_eager_raises():
    def program(x):
        return x.add_(1)

    for run_it in (program, flambeau.compile(program)):
        with pytest.raises(RuntimeError, match="more than one element"):
            run_it(torch.zeros(1, 7).expand(9, 7))


def test_a_cache_folder_that_cannot_be_written(tmp_path):
    folder = tmp_path / "not-a-folder"
    folder.write_text("a file is in the way")
    done = run(RIGHT, FLAMBEAU_CACHE_DIR=str(folder / "kernels"))
    assert "graphs that fell back: 0" in done.stdout
    assert "Warning" in done.stderr
    assert str(folder) in done.stderr


def test_a_cache_folder_that_others_may_write_to(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    done = run(RIGHT, FLAMBEAU_CACHE_DIR=str(folder))
    assert "graphs that fell back: 0" in done.stdout
    assert "Warning" in done.stderr
    assert list(folder.iterdir()) == []


def test_a_second_process_finds_the_first_ones_kernels(tmp_path):
    shows = RIGHT + '    print("hits:", flambeau.report(compiled).records[0].cache_hits)\n'
    kernels = str(tmp_path / "kernels")
    assert "hits: 0" in run(shows, FLAMBEAU_CACHE_DIR=kernels).stdout
    assert "hits: 1" in run(shows, FLAMBEAU_CACHE_DIR=kernels).stdout


def test_a_backend_that_raises():
    def broken(gm, example_inputs):
        raise RuntimeError("the backend's own words")

    compiled = flambeau.compile(program, backend=broken)
    x = torch.randn(5)
    with pytest.warns(UserWarning, match="the backend's own words") as caught:
        assert torch.equal(compiled(x), program(x))
    assert "y = torch.cos(x)" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x), program(x))


def test_a_backend_that_raises_where_the_graph_must_be_whole():
    def broken(gm, example_inputs):
        raise RuntimeError("the backend's own words")

    compiled = flambeau.compile(program, backend=broken, fullgraph=True)
    with pytest.raises(Exception, match="the backend's own words") as caught:
        compiled(torch.randn(5))
    assert "y = torch.cos(x)" in str(caught.value)


def test_a_backend_that_returns_nothing():
    compiled = flambeau.compile(program, backend=lambda gm, example_inputs: None)
    x = torch.randn(5)
    with pytest.warns(UserWarning):
        assert torch.equal(compiled(x), program(x))


def test_an_unknown_backend():
    with pytest.raises(ValueError, match=r"unknown backend 'turbo'.*known: .*inductor"):
        flambeau.compile(program, backend="turbo")


class Mine(Exception):
    pass


def raises(x, flag):
    x = x + 1
    if flag:
        raise Mine("the program's own")
    return x


def test_a_users_exception_stays_what_it_is(backend):
    compiled = flambeau.compile(raises, backend=backend)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x, False), x + 1)
    for _ in range(2):
        with pytest.raises(Mine, match="the program's own") as caught:
            compiled(x, True)
        lines = traceback.extract_tb(caught.value.__traceback__)
        innermost = [entry for entry in lines if entry.filename == __file__][-1]
        assert innermost.line == 'raise Mine("the program\'s own")'


def test_shapes_that_do_not_fit_raise_what_eager_raises(backend):
    def add(x, y):
        return x.sin() + y

    compiled = flambeau.compile(add, backend=backend)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(3), torch.randn(4))
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x, x), add(x, x))


def test_options_are_checked_before_anything_runs():
    with pytest.raises(TypeError, match="unknown option 'no_such_option'"):
        flambeau.compile(program, options={"no_such_option": 1})
    with pytest.raises(ValueError, match="unknown mode 'warp'"):
        flambeau.compile(program, mode="warp")


MATRICES = (
    *("lu_factor", "lu_factor_ex", "lu", "inv", "inv_ex", "det", "slogdet", "qr", "svd", "eig"),
    *("eigvals", "eigh", "cholesky", "cholesky_ex", "ldl_factor_ex", "matrix_exp", "pinv"),
)


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.filterwarnings("error:.*PrimError")
def test_dtypes_that_a_library_does_not_take(name: str) -> None:
    """Of linear algebra: eager's error, with no fault of a primitive's on the way to it."""

    def program(x: torch.Tensor) -> object:
        return getattr(torch.linalg, name)(x)

    for dtype in (torch.int64, torch.bool, torch.float16):
        x = torch.eye(3).to(dtype)
        try:
            program(x)
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                flambeau.compile(program, backend="aot_eager_prims")(x)
            assert str(caught.value) == str(error)
