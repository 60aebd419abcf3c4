"""The kit finds what is wrong with a backend, and nothing in one that is right."""

import json
import random

import pytest
import torch
from flambeau_prims import PRIMS, PrimError, verify
from flambeau_prims._op import metas_of
from flambeau_prims._torch_compat import is_settled
from flambeau_prims.conformance import Declaration, KitPlan, ScoreCard, cases, check, run
from flambeau_prims.conformance.__main__ import main
from flambeau_prims.conformance.compare import judge_of
from flambeau_prims.conformance.programs.composed import (
    COMPOSED,
    composed,
    composed_with_symbols,
    symbolic,
)
from flambeau_prims.conformance.programs.programs import program_of
from flambeau_prims.conformance.programs.random_graphs import Dice, random_program
from flambeau_prims.conformance.samples.cases import cases_of
from torch import fx


def eager(gm, inputs):
    return gm.forward


def changed(change):
    """Eager, but for what `change(results, inputs)` does to the results."""
    return lambda gm, inputs: lambda *xs: change(list(gm(*xs)), xs)


def card(outcomes):
    return ScoreCard("test", Declaration(), tuple(outcomes), 0.0)


def one(name, number=0):
    case = list(cases_of(PRIMS[name]))[number]
    return program_of(name, [case], judge_of)


def test_eager_is_right():
    kinds = ("prims", "graphs", "random")
    outcomes = run(eager, KitPlan(dtypes=[torch.float32], kinds=kinds, random_graphs=20))
    wrong = [(o.program.name, o.message) for o in outcomes if o.status != "right"]
    assert not wrong
    families = {o.program.family for o in outcomes}
    assert {"pointwise", "graphs", "random graphs", "linalg"} <= families


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("exp", lambda r, xs: [r[0] * 1.001], "rms error"),
        ("exp", lambda r, xs: [r[0].double()], "has dtype float64"),
        ("exp", lambda r, xs: [r[0][:1]], "has shape"),
        ("exp", lambda r, xs: [r[0].transpose(0, 1).contiguous().transpose(0, 1)], "has strides"),
        ("exp", lambda r, xs: r * 2, "returned 2, not a tuple of 1"),
        ("exp", lambda r, xs: r[0], "returned Tensor"),
        ("exp", lambda r, xs: [1.0], "is a float, not a tensor"),
        ("exp", lambda r, xs: (xs[0].zero_(), r)[1], "input 0 was written to"),
        ("neg", lambda r, xs: [r[0].nextafter(torch.ones(()))], "must be equal"),
        ("copy_", lambda r, xs: [xs[1].clone()], "strides"),
        ("qr", lambda r, xs: [-r[0], r[1]], "Q R is not the operand"),
        ("svd", lambda r, xs: [r[0].flip(-1), *r[1:]], "is not the operand"),
        ("eigh", lambda r, xs: [r[0], r[1] * 2], "A V is not|orthonormal"),
        ("eig", lambda r, xs: [r[0] + 1, r[1]], "eigenvalues"),
        ("lu_factor", lambda r, xs: [r[0] * 2, *r[1:]], "L U is not"),
        ("ldl_factor", lambda r, xs: [r[0] * 2, *r[1:]], "do not solve"),
        ("geqrf", lambda r, xs: [r[0], r[1] * 0], "is not the operand"),
        ("topk", lambda r, xs: [r[0], r[1] * 0], "positions|given twice"),
        ("median", lambda r, xs: [r[0], r[1] + 99], "out of range"),
        ("sort", lambda r, xs: [r[0].flip(1), r[1]], "must be equal|strides"),
    ],
)
def test_wrong_results_are_found(name, change, message):
    outcome = check(changed(change), one(name))
    assert outcome.status == "wrong"
    assert torch.tensor([part in outcome.message for part in message.split("|")]).any(), outcome


def test_other_right_answers_are_accepted():
    flip = torch.tensor([1.0, -1.0, -1.0])

    def signs(results, xs):
        u, s, vh = results
        return [u * flip, s, (vh.mT * flip).mT]

    def stored(results, xs):
        new = signs(results, xs)
        return [old.clone().copy_(x) for old, x in zip(results, new, strict=True)]

    assert check(changed(stored), one("svd")).status == "right"


def test_nan_and_infinity_are_looked_for():
    special = [c for c in cases_of(PRIMS["exp"]) if c.special and c.dtype == torch.float32]
    program = program_of("exp", special, judge_of)
    tame = changed(lambda r, xs: [r[0].nan_to_num()])
    outcome = check(tame, program)
    assert outcome.status == "wrong" and "not finite" in outcome.message
    zeros = [c for c in cases_of(PRIMS["neg"]) if c.special and c.dtype == torch.float32]
    outcome = check(changed(lambda r, xs: [r[0] + 0.0]), program_of("neg", zeros, judge_of))
    assert outcome.status == "wrong" and "must be equal" in outcome.message  # -0 became 0


def test_exceptions_are_outcomes():
    def broken(gm, inputs):
        raise KeyError("no kernel")

    outcome = check(broken, one("exp"))
    assert (outcome.status, outcome.message) == ("error", "KeyError: 'no kernel'")


def test_a_failing_call_is_named():
    def odd(gm, inputs):
        class Run(fx.Interpreter):
            def call_function(self, target, args, kwargs):
                result = super().call_function(target, args, kwargs)
                return result * 2 if args[0].ndim == 2 else result

        return lambda *xs: Run(gm).run(*xs)

    outcomes = run(odd, KitPlan(prims=["sin"], dtypes=[torch.float32]))
    wrong = {o.program.name for o in outcomes if o.status == "wrong"}
    assert wrong == {"sin-float32-one-0", "sin-float32-odd-0"}


def test_declarations_are_shown():
    def partial(gm, inputs):
        assert not any(x.dtype == torch.bfloat16 for x in inputs)
        return gm.forward

    partial.declares = Declaration(dtypes={torch.bfloat16: "no such dtype"}, prims={"erf": "none"})
    outcomes = run(partial, KitPlan(prims=["cos", "erf"]))
    counts = card(outcomes).counts()["pointwise"]
    assert counts["declared"] > 0 and counts["right"] > 0 and counts["error"] == 0
    text = card(outcomes).text()
    assert "bfloat16: no such dtype" in text and "erf: none" in text and text.endswith("passed")
    # a cast from float32 asks for bfloat16, too
    outcomes = run(partial, KitPlan(prims=["cast"], dtypes=[torch.float32]))
    assert {o.status for o in outcomes} == {"right", "declared"}


def test_card_counts_everything(capsys):
    outcomes = run(changed(lambda r, xs: [x + 1 for x in r]), KitPlan(prims=["sin", "mm"]))
    board = card(outcomes)
    assert not board.passed and not card([]).passed
    assert sum(sum(c.values()) for c in board.counts().values()) == len(outcomes)
    data = json.loads(json.dumps(board.data()))
    assert len(data["failures"]) == sum(f["wrong"] for f in data["families"].values()) > 0
    assert "and " in board.text(failures=1) and board.text().endswith("failed")


def test_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "half_done.py").write_text(
        "def backend(gm, inputs):\n"
        "    if 'exp' in str(gm.graph):\n        raise NotImplementedError('exp')\n"
        "    return gm.forward\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["half_done:backend", "--prim", "sin", "--prim", "exp", "--dtype", "float32"]
    assert main(arguments[:3] + arguments[5:]) == 0
    assert "passed" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["families"]["pointwise"]["error"] > 0
    for bad, message in (("half_done", "named like"), ("nowhere:f", "cannot load")):
        with pytest.raises(SystemExit):
            main([bad])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(PRIMS))
def test_every_primitive_is_asked_about_its_dtypes(name):
    """Calls cover the dtypes that the definition names, as far as the kit's set goes."""
    found = list(cases(names=[name]))
    assert found
    if "pointwise" in PRIMS[name].tags and PRIMS[name].dtypes is not None:
        from flambeau_prims.conformance.samples.tensors import DTYPES

        assert {c.args[0].dtype for c in found} == set(DTYPES) & PRIMS[name].dtypes


def test_random_graphs_are_in_the_dialect_and_differ():
    programs = [random_program(Dice(random.Random(i))) for i in range(60)]
    for program in programs:
        verify(program.gm, leaves=False)
    used = set().union(*(p.prims for p in programs))
    assert len(used) > 25 and len({p.gm.code for p in programs}) > 50


def test_programs_with_symbols_run_on_other_sizes():
    made = {name: symbolic(PRIMS[name]) for name in ("add", "sum", "mm", "cat", "gather", "sort")}
    for program in made.values():
        val = next(n.meta["val"] for n in program.gm.graph.nodes if n.op == "placeholder")
        assert any(isinstance(size, torch.SymInt) for size in val.shape)
        assert program.inputs[0].shape != program.others[0][0].shape
        assert check(eager, program).status == "right"

    def fixed(gm, inputs):
        shapes = [x.shape for x in inputs]

        def call(*xs):
            assert [x.shape for x in xs] == shapes, "other sizes"
            return gm(*xs)

        return call

    outcome = check(fixed, made["add"])
    assert outcome.status == "error" and "other sizes" in outcome.message
    for program in composed_with_symbols():
        assert not any(
            is_settled(n) for node in program.gm.graph.find_nodes(op="placeholder")
            for n in node.meta["val"].shape
        )  # fmt: skip
        assert check(eager, program).status == "right"
    assert symbolic(PRIMS["full"]) is None and symbolic(PRIMS["nonzero"]) is None


def test_composed_programs_say_what_they_hold():
    programs = list(composed())
    assert [p.name for p in programs] == list(COMPOSED)
    for program in programs:
        verify(program.gm, leaves=False)
    assert torch.bfloat16 in next(p.dtypes for p in programs if p.name == "half precision")


@pytest.mark.parametrize("name", sorted(PRIMS))
def test_bad_arguments_are_refused_by_name(name):
    """An operand of another rank, dtype or kind: fine, or an error that begins with the name."""
    prim = PRIMS[name]
    case = next(iter(cases_of(prim)))
    args = [metas_of(a) for a in case.args]
    kwargs = {key: metas_of(value) for key, value in case.kwargs.items()}
    refused = 0
    for i, arg in enumerate(args):
        for other in _spoiled(arg):
            try:
                prim.rule(*args[:i], other, *args[i + 1 :], **kwargs)
            except PrimError as error:
                assert str(error).startswith(name)
                refused += 1
    creates = prim.tags & {"creation", "effect"}
    assert refused > 0 or creates or not args


def _spoiled(arg):
    if hasattr(arg, "stride"):
        yield from (arg.like((*arg.shape, 3)), arg.like(dtype=torch.complex64), None)
        yield from (arg.like(dtype=torch.bool), arg.like(arg.shape[:-1]))
    elif isinstance(arg, int) and not isinstance(arg, bool):
        yield from (99, -1)
    elif isinstance(arg, list):
        yield from ([*arg, 99], [-1] * len(arg))
