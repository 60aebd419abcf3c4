"""A recompilation is explained by the entry that the call was nearest to."""

import pytest
import torch
from flambeau_capture import optimize, set_stance
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import RecompileError

SETTINGS = {
    "grad mode": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("last", ["plain", "set"])
def test_what_differs_is_said_and_not_what_another_entry_expected(setting, last):
    def fn(x, y, flag):
        return (x @ y if flag else x @ y.T).relu()

    compiled = optimize("eager", dynamic=False)(fn)
    x, y = torch.ones(3, 3), torch.ones(3, 3)
    inside = SETTINGS[setting]

    def in_setting():
        with inside():
            compiled(x.double(), y.double(), False)

    calls = [lambda: compiled(x, y, True), in_setting]
    for call in calls if last == "set" else reversed(calls):
        call()
    z = torch.ones(5, 3)
    with set_stance("fail_on_recompile"), pytest.raises(RecompileError, match=r"local 'x'.*sizes"):
        compiled(z, y, True)
    (record, *_) = compiler_of(compiled).records.recompiles[-1:]
    assert [str(failure.guard).split()[1] for failure in record.failures][0] == "'x'"
    assert len(record.failures) == 2
