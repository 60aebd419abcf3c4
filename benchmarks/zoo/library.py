"""The architectures that a library builds from configurations, as workloads.

In: "family/name", as the sweep of `integration_tests` names them. Out: a `Workload`.
Invariant: weights and inputs depend on the name alone; a model that draws random numbers in a step
says so, and is then timed but not compared.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy
import torch

from benchmarks.zoo.workload import Workload, flat
from integration_tests.sweep.cases import Case, families

#: the most parameters that a model may have; the tests' sweep leaves out more of them
LARGEST = {"cpu": 350_000_000, "cuda": 2_000_000_000}

#: what the command line of a suite calls them
SUITES = {"hf": "transformers", "timm": "timm", "torchvision": "torchvision"}


def names(suite: str, every: bool) -> list[str]:
    """The models of a suite, as "family/name"; `every`: all variants, not one of a kind."""
    family = SUITES[suite]
    return [f"{family}/{case.name}" for case in families()[family](every)]


def workload(name: str, device: str, training: bool) -> Workload:
    """A model and one batch; in training its loss is the mean square of what it returns.

    Raises ValueError for a name that no library has, NotBuilt for a model that it does not build.
    """
    subject = _case(name, LARGEST[device]).build()
    module = subject.module.to(device).train(training)
    given = {key: _moved(value, device) for key, value in subject.inputs[0].items()}
    keys = [key for key, value in given.items() if isinstance(value, torch.Tensor)]
    rest = {key: value for key, value in given.items() if key not in keys}

    def run(*tensors: torch.Tensor) -> Any:
        outputs = module(**dict(zip(keys, tensors, strict=True)), **rest)
        if not training:
            return outputs
        return sum(each.float().square().mean() for each in flat(outputs)), outputs

    inputs = tuple(given[key] for key in keys)
    work = Workload(run, inputs, module, training)
    work.random = _draws(work)
    return work


def _case(name: str, largest: int) -> Case:
    from integration_tests.sweep import timm_cases  # as `families` does
    from integration_tests.sweep.transformers_models import cases as transformers_cases

    timm_cases.LIMIT = transformers_cases.LIMIT = largest
    family, _, own = name.partition("/")
    for case in families()[family](True):
        if case.name == own:
            return case
    raise ValueError(f"no model {own!r} in {family}")


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


def _draws(work: Workload) -> bool:
    """Whether two steps from different seeds differ; buffers are put back."""
    assert work.module is not None
    kept = copy.deepcopy(work.module.state_dict())  # with the versions that it holds
    found = []
    for seed in (1, 2):
        for draw in (torch.manual_seed, random.seed, numpy.random.seed):
            draw(seed)
        found.append([each.detach().clone() for each in work.step(work.fn)])
        work.module.load_state_dict(kept)
    one, other = found
    return not all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
