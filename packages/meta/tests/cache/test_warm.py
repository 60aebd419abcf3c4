"""A second process, which loads what the first one has compiled and not what compiles."""

PROGRAM = """
import json, sys, torch, flambeau
torch.manual_seed(0)
x, source = torch.randn(5, 6), torch.randn(3, 2)

def scattered(x, source):  # one of its calls is a primitive that no kernel is made of
    return torch.as_strided_scatter(x * 2, source.sin(), (3, 2), (6, 2), 1) + 1

compiled = flambeau.compile(scattered)
torch.testing.assert_close(compiled(x, source), scattered(x, source))
records = flambeau.report(compiled).records
calls = list(flambeau.report(compiled).externs)
print(json.dumps({"disk": [record.from_disk for record in records], "calls": calls}))
"""


def test_a_program_that_calls_a_primitive(twice):
    cold, warm = twice(PROGRAM)
    assert any(name.startswith("flambeau_prims.") for name in cold["calls"]), cold
    assert cold["disk"] == [False] and warm["disk"] == [True]
