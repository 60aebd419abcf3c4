"""A part of the sweep; and that the sweep sees what it is for.

`FLAMBEAU_PART` picks another part; a failure names the command that repeats it.
"""

import dataclasses
import os
import re

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.sweep import SweepPlan, database, judge, sweep
from flambeau_prims.sweep.__main__ import main
from flambeau_prims.sweep.database import VALUES
from flambeau_prims.sweep.judge import DIFFERENCES
from flambeau_prims.sweep.measure import compare
from flambeau_prims.sweep.run import pairs
from flambeau_prims.sweep.watch import WithWriting

aten = torch.ops.aten
PARTS = 12
PART = int(os.environ.get("FLAMBEAU_PART", "0"))


def test_part():
    plan = SweepPlan(samples=2, part=PART, parts=PARTS)
    verdicts = list(sweep(plan))
    wrong = [f"{v.name} {v.dtype}: {v.message}" for v in verdicts if v.status == "wrong"]
    again = f"python -m flambeau_prims.sweep --samples 2 --part {PART} --parts {PARTS}"
    assert wrong == [], f"repeat with: {again}"
    assert len(verdicts) > 150 and sum(v.samples for v in verdicts) > 250
    assert sum(v.gradients for v in verdicts) > 50


@pytest.mark.parametrize("values", VALUES)
def test_part_at_the_limits(values):
    """Infinities, NaN, signed zeros; the largest and smallest numbers: forward and backward."""
    dtypes = ("float32", "float64", "bfloat16", "float16")
    parts = 3 * PARTS
    part = PART % parts
    plan = SweepPlan(dtypes=dtypes, samples=2, part=part, parts=parts, values=values)
    verdicts = list(sweep(plan))
    wrong = [f"{v.name} {v.dtype}: {v.message}" for v in verdicts if v.status == "wrong"]
    assert wrong == []
    assert len(verdicts) > 40


def test_values_at_the_limits_are_drawn():
    entry = database.by_name()["exp"]
    (plain,) = (call.args[0] for call in database.calls(entry, torch.float32, 1, True))
    for values, table in VALUES.items():
        ((x,),) = (call.args for call in database.calls(entry, torch.float32, 1, True, values))
        drawn = x.isnan() | torch.isin(x, torch.tensor(table(torch.finfo(torch.float32))))
        assert x.requires_grad and drawn.any() and (x == plain).any()


def test_a_gradient_that_overflows_is_seen():
    def bent(grad, x, *, approximate="none"):
        slope = x * (x * x * 0.2 + 1.6)
        low = torch.sigmoid(-(x * (x * x * 0.07 + 1.6)).abs())
        return grad * (torch.where(x < 0, low, 1 - low) + slope * (low - low * low))

    table = WithWriting({**decompositions(), aten.gelu_backward.default: bent})
    verdict = judge("nn.functional.gelu", "float32", table, 6, "extreme")
    # by the processor's sigmoid an infinity or no number where eager has the largest one
    assert verdict.status == "wrong" and re.search("nan|inf", verdict.message)


def test_parts_are_the_whole():
    whole = sorted(pairs(SweepPlan()))
    parts = [pair for part in range(PARTS) for pair in pairs(SweepPlan(part=part, parts=PARTS))]
    assert sorted(parts) == whole and len(set(whole)) == len(whole) > 3000


def verdict(changes, name="exp", dtype="float32"):
    return judge(name, dtype, WithWriting({**decompositions(), **changes}), 2)


def test_a_wrong_value_is_seen():
    assert verdict({}).status == "right"
    wrong = verdict({aten.exp.default: lambda x: torch.exp(x) * 1.001})
    assert wrong.status == "wrong" and "error" in wrong.message


def test_a_wrong_gradient_is_seen():
    bent = {aten.sigmoid_backward.default: lambda g, y: g * y}
    assert verdict(bent, "sigmoid").status == "wrong"
    assert "gradient" in verdict(bent, "sigmoid").message


def test_a_wrong_dtype_or_shape_is_seen():
    assert "instead of" in verdict({aten.exp.default: lambda x: torch.exp(x).double()}).message
    assert verdict({aten.exp.default: lambda x: torch.exp(x)[None]}).status == "wrong"


def test_an_exception_is_seen():
    def refuse(x):
        raise RuntimeError("no")

    assert "RuntimeError: no" in verdict({aten.exp.default: refuse}).message


def test_an_undeclared_leaf_is_seen():
    left = verdict({aten.exp.default: lambda x: NotImplemented})
    assert left.status == "wrong" and "aten.exp.default" in left.message
    assert verdict({}, "bernoulli").status == "leaf"


def test_a_broken_rule_is_seen(monkeypatch):
    from flambeau_prims import PRIMS
    from flambeau_prims.sweep import watch

    known, exp = watch.prim_of, PRIMS["exp"]
    bent = dataclasses.replace(exp, rule=lambda a: a.like(dtype=torch.float64))
    monkeypatch.setattr(watch, "prim_of", lambda op: bent if op is exp.overload else known(op))
    assert "the rule gives" in verdict({}).message


def test_a_difference_hides_values_alone():
    name = "empty"
    assert (name, "*") in DIFFERENCES
    assert verdict({}, name).status == "different"
    raised = verdict({aten.empty.memory_format: lambda *a, **k: torch.zeros(1, 2, 3)}, name)
    assert raised.status == "wrong"


@pytest.mark.parametrize(
    ("ours", "eager"),
    [
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([1.0]), torch.tensor([1.01])),
    ],
)
def test_compare_refuses(ours, eager):
    assert compare(ours, eager, None).differs
    assert compare(eager, eager, None).differs is None


def test_command(capsys, tmp_path):
    page = tmp_path / "page.md"
    record = tmp_path / "record.json"
    accuracy = tmp_path / "accuracy.md"
    accuracy.write_text("# Head\n<!-- worst: begin -->\nold\n<!-- worst: end -->\ntail\n")
    arguments = ["^erf$", "--samples", "2", "--worst", "--layouts"]
    files = ["--markdown", str(page), "--json", str(record), "--accuracy", str(accuracy)]
    assert main([*arguments, *files]) == 0
    assert "| erf |" in accuracy.read_text() and "old" not in accuracy.read_text()
    assert accuracy.read_text().startswith("# Head") and accuracy.read_text().endswith("tail\n")
    out = capsys.readouterr().out
    assert "| right |" in out and "our error / eager's" in out
    assert "## Different" in page.read_text() and '"status": "right"' in record.read_text()
    assert main(["^erfc$", "--samples", "1", "--merge", str(record), "--json", str(record)]) == 0
    merged = record.read_text()
    assert '"name": "erf"' in merged and '"name": "erfc"' in merged
    assert "2 operations" in capsys.readouterr().out
