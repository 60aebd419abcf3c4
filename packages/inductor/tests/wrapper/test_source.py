"""Programs made by hand, printed and run."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import torch
from flambeau_inductor.indexing import Symbol, Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Point, Store
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    SymbolSource,
)
from flambeau_inductor.runtime.artifact import load_wrapper
from flambeau_inductor.wrapper import generate, names
from flambeau_inductor.wrapper.source import LoopLaunch

CPU = torch.device("cpu")


def layout(*shape: int, stride: tuple[int, ...] | None = None, dtype=torch.float32, offset=0):
    steps = stride if stride is not None else torch.empty(shape, device="meta").stride()
    return Layout(shape, steps, dtype, CPU, offset)


def program(steps, outputs, buffers, inputs=1, constants=()) -> Program:
    made = tuple(Buffer(name, of) for name, of in buffers.items())
    return Program("hand", made[:inputs], outputs, made, tuple(steps), tuple(constants))


def run(given: Program, args: list[Any], launches=None, **known: Any) -> tuple[Any, ...]:
    wrapper = generate(given, launches or {})
    result = load_wrapper(wrapper.text, "hand", {**known, **dict(given.constants)})(args)
    assert args == []
    return result


def exp_loop(source: str, target: str, name: str = "loop0") -> RunLoop:
    x = Var("x0")
    body = (Load(source, x, torch.float32), Point("exp", (0,), torch.float32), Store(target, x, 1))
    return RunLoop(Loop(name, (Axis("x0", 6),), (), body))


def test_memory_that_is_taken_over_keeps_its_name_until_it_is_written():
    """A product in parts runs a kernel before the one that adds them up onto what was there."""
    given = program(
        [
            Alloc("buf0"),
            exp_loop("in0", "buf0"),
            Reuse("buf1", "buf0"),
            Alloc("parts"),
            exp_loop("in0", "parts", "loop1"),
            exp_loop("buf0", "buf1", "loop2"),
            FreeBuffer("parts"),
        ],
        (Ref("buf1"),),
        {name: layout(6) for name in ("in0", "buf0", "buf1", "parts")},
    )

    def kernel(source: torch.Tensor, target: torch.Tensor) -> None:
        torch.exp(source, out=target)

    launches = {
        name: LoopLaunch("kernel", buffers, False)
        for name, buffers in (
            ("loop0", ("in0", "buf0")),
            ("loop1", ("in0", "parts")),
            ("loop2", ("buf0", "buf1")),
        )
    }
    x = torch.rand(6)
    (found,) = run(given, [x], launches, kernel=kernel)
    assert torch.equal(found, x.exp().exp())


def test_the_text_of_a_small_program():
    given = program(
        [
            Alloc("buf0"),
            Extern("aten.mm.out", (Ref("in0"), Ref("in1")), (), (Ref("buf0"),)),
            FreeBuffer("in0"),
            FreeBuffer("in1"),
            Reuse("buf1", "buf0"),
            exp_loop("buf0", "buf1"),
        ],
        (Ref("buf1", layout(2, 2, offset=2)), None, Ref("buf1")),
        {"in0": layout(2, 3), "in1": layout(3, 3), "buf0": layout(2, 3), "buf1": layout(6)},
        inputs=2,
    )
    wrapper = generate(given, {"loop0": LoopLaunch("kernel0", ("buf0", "buf1"), True)})
    body = wrapper.text[wrapper.text.index("on_cpu") :]
    assert body == (
        "on_cpu = device('cpu')\n"
        "ROWS = {'call': 'hand', 'kernel0': 'kernel0: '}\n"
        "\n\n"
        "def call(args):\n"
        "    if profiler._is_profiler_enabled:\n"
        "        return profiled(args)\n"
        "    (in0, in1,) = args\n"
        "    args.clear()\n"
        "    buf0 = empty_strided((2, 3), (3, 1), dtype=torch.float32, device=on_cpu)\n"
        "    aten_mm_out(in0, in1, out=buf0)\n"
        "    del in0, in1\n"
        "    buf1 = reuse(buf0, (6,), (1,), torch.float32)\n"
        "    buf0_at = buf0.data_ptr()\n"
        "    kernel0(buf0_at, buf0_at)\n"
        "    del buf0\n"
        "    return (seen_as(buf1, (2, 2), (2, 1), 2).detach(), None, buf1,)\n"
    )
    assert wrapper.operators == {"aten_mm_out": "aten.mm.out"}
    ast.parse(wrapper.text)


def test_it_runs_with_tensors_for_kernels_that_take_tensors():
    given = program(
        [Alloc("buf0"), exp_loop("in0", "buf0"), FreeBuffer("in0")],
        (Ref("buf0"),),
        {"in0": layout(6), "buf0": layout(6)},
    )
    x = torch.randn(6)

    def kernel(source: torch.Tensor, target: torch.Tensor) -> None:
        torch.exp(source, out=target)

    launches = {"loop0": LoopLaunch("kernel", ("in0", "buf0"), False)}
    (result,) = run(given, [x], launches, kernel=kernel)
    torch.testing.assert_close(result, x.exp())


def test_an_address_that_several_launches_take_is_asked_for_once():
    given = program(
        [Alloc("buf0"), exp_loop("in0", "buf0"), exp_loop("in0", "buf0", "loop1")],
        (Ref("buf0"),),
        {"in0": layout(6), "buf0": layout(6)},
    )
    launch = LoopLaunch("kernel0", ("in0", "buf0"), True)
    text = generate(given, {"loop0": launch, "loop1": launch}).text
    assert text.count("in0.data_ptr()") == 1 and text.count("kernel0(in0_at, buf0_at)") == 2


def test_memory_that_is_taken_over_is_asked_for_its_address_once():
    given = program(
        [
            Reuse("buf0", "in0"),
            exp_loop("in0", "buf0"),
            Reuse("buf1", "buf0"),
            exp_loop("buf0", "buf1", "loop1"),
        ],
        (Ref("buf1"),),
        {"in0": layout(6), "buf0": layout(6), "buf1": layout(2, 3)},
    )
    launches = {
        "loop0": LoopLaunch("kernel0", ("in0", "buf0"), True),
        "loop1": LoopLaunch("kernel0", ("buf0", "buf1"), True, offsets=(0, 4)),
    }
    text = generate(given, launches).text
    assert text.count(".data_ptr()") == 1
    assert "kernel0(in0_at, in0_at)" in text and "kernel0(in0_at, in0_at + 4)" in text
    x, seen = torch.randn(6), []
    run(given, [x], launches, kernel0=lambda source, target: seen.append((source, target)))
    at = x.data_ptr()
    assert seen == [(at, at), (at, at + 4)]


def test_library_results_one_several_and_a_list():
    given = program(
        [
            Extern("aten.relu.default", (Ref("in0"),), results=("buf0",)),
            Extern(
                "aten.sort.stable",
                (Ref("in0"),),
                (("stable", True), ("dim", 1), ("descending", False)),
                results=("buf1", None),
            ),
            Extern("aten.split.Tensor", (Ref("in0"), 2, 1), results=("buf2", "buf3")),
        ],
        (Ref("buf0"), Ref("buf1"), Ref("buf2"), Ref("buf3")),
        {
            "in0": layout(3, 4),
            "buf0": layout(3, 4),
            "buf1": layout(3, 4),
            "buf2": layout(3, 2),
            "buf3": layout(3, 2, stride=(4, 1)),
        },
    )
    x = torch.randn(3, 4)
    relu, ordered, left, right = run(given, [x])
    assert torch.equal(relu, x.relu()) and torch.equal(ordered, x.sort(1).values)
    assert torch.equal(left, x[:, :2]) and left.stride() == (2, 1)
    assert torch.equal(right, x[:, 2:]) and right.stride() == (4, 1)


def test_arguments_of_every_kind():
    values = (
        Ref("buf3"),
        (1, (2.5, None)),
        True,
        "text",
        torch.bfloat16,
        CPU,
        torch.strided,
        torch.channels_last,
        float("inf"),
        float("-inf"),
        1e-5,
    )
    known = {"torch": torch, "device": torch.device, "inf": float("inf"), "buf3": 3}
    read = [eval(names.argument(v), known) for v in values]
    assert read[0] == 3 and read[1] == [1, [2.5, None]]
    assert read[2:] == list(values[2:])
    with pytest.raises(TypeError, match="cannot be an argument"):
        names.argument(object())  # type: ignore[arg-type]


def test_indices_are_checked_before_use():
    index = Layout((2,), (1,), torch.int64, CPU)
    given = program(
        [CheckIndex(Ref("in0"), 4, True, "IndexError", "{index} is out")],
        (Ref("in0"),),
        {"in0": index},
    )
    assert run(given, [torch.tensor([-4, 3])])[0].tolist() == [-4, 3]
    with pytest.raises(IndexError, match=r"^4 is out$"):
        run(given, [torch.tensor([0, 4])])


def test_open_sizes_are_read_from_the_inputs_once():
    size = Symbol("size0", 3, {})
    given = program(
        [Alloc("buf0")],
        (Ref("buf0"),),
        {
            "in0": Layout((size, 4), (4, 1), torch.float32, CPU),
            "buf0": Layout((size * 4 + 1,), (1,), torch.float32, CPU),
        },
    )
    given = replace(given, symbols=(("size0", SymbolSource(0, 0)),))
    text = generate(given, {}).text
    assert text.count("size0 = in0.size(0)") == 1
    call = load_wrapper(text, "open", {})
    for rows in (1, 3, 17):
        (result,) = call([torch.randn(rows, 4)])
        assert result.shape == (rows * 4 + 1,)


def test_a_number_among_the_inputs_is_a_size():
    size = Symbol("size0", 3, {})
    given = program(
        [Alloc("buf0")],
        (Ref("buf0"), size * 2),
        {"in0": layout(6), "buf0": Layout((size,), (1,), torch.float32, CPU)},
    )
    given = replace(given, numbers=(1,), symbols=(("size0", SymbolSource(1)),))
    call = load_wrapper(generate(given, {}).text, "open", {})
    result, twice = call([torch.randn(6), 5])
    assert result.shape == (5,) and twice == 10


def test_memory_is_let_go_where_the_program_says():
    import weakref

    seen: list[bool] = []
    given = program(
        [FreeBuffer("in0"), Alloc("buf0"), exp_loop("buf0", "buf0")],
        (Ref("buf0"),),
        {"in0": layout(6), "buf0": layout(6)},
    )
    args = [torch.randn(6)]
    watched = weakref.ref(args[0])

    def kernel(target: torch.Tensor) -> None:
        seen.append(watched() is None)

    run(given, args, {"loop0": LoopLaunch("kernel", ("buf0",), False)}, kernel=kernel)
    assert seen == [True]


def test_a_traceback_shows_the_wrappers_line():
    import traceback

    given = program(
        [Extern("aten.mm.out", (Ref("in0"), Ref("in0")), (), (Ref("in0"),))],
        (),
        {"in0": layout(2, 3)},
    )
    with pytest.raises(RuntimeError) as raised:
        run(given, [torch.randn(2, 3)])
    assert "aten_mm_out(in0, in0, out=in0)" in "".join(traceback.format_exception(raised.value))


def test_devices_of_one_kind_have_names_of_their_own():
    places = {"cuda": "on_cuda", "cuda:0": "on_cuda0", "cuda:1": "on_cuda1"}
    buffers = {
        f"buf{k}": replace(layout(6), device=torch.device(at)) for k, at in enumerate(places)
    }
    steps = [Alloc(name) for name in buffers]
    given = program(steps, tuple(map(Ref, buffers)), buffers, inputs=0)
    text = generate(given, {}).text
    tree = ast.parse(text)
    made = {
        ast.unparse(each.targets[0]): ast.literal_eval(each.value.args[0])
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.value).startswith("device(")
    }
    assert made == {name: at for at, name in places.items()}
