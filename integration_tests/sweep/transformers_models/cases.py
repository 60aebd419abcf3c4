"""Architectures of transformers' auto mappings, at a fraction of its size.

In: nothing. Out: cases. Invariant: a configuration is the library's default with sizes, depths and
vocabularies cut down by name; what a form of it cannot build or run, the next form tries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.zoo.torchvision_cpu import torchvision
from integration_tests.sweep.cases import Case, NotBuilt, Subject, runs
from integration_tests.sweep.transformers_models.forms import FORMS, shrunk
from integration_tests.sweep.transformers_models.inputs import candidates
from integration_tests.sweep.transformers_models.recipes import RECIPES

LIMIT = 350_000_000  # parameters
PATIENCE = 15.0  # seconds after which no further form is tried


def cases(every: bool) -> Iterator[Case]:
    """The base class of every model type; all its classes if asked for."""
    torchvision()
    import transformers  # slow to import, and only this family needs it
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    seen: set[str] = set()
    tables = [modeling_auto.MODEL_MAPPING_NAMES]
    if every:
        names = sorted(n for n in dir(modeling_auto) if n.endswith("_MAPPING_NAMES"))
        tables += [getattr(modeling_auto, n) for n in names if n.startswith("MODEL_FOR_")]
    for table in tables:
        for model_type, classes in sorted(table.items()):
            for kind in (classes,) if isinstance(classes, str) else classes:
                if kind not in seen:
                    seen.add(kind)
                    yield Case(kind, "transformers", partial(_build, model_type, kind))


def _build(model_type: str, kind: str) -> Subject:
    import transformers  # imported by `cases` before

    model_class = getattr(transformers, kind, None)
    if model_class is None:
        raise NotBuilt("no such class")
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        config_class = transformers.AutoConfig.for_model(model_type).__class__
    tried: list[str] = []
    recipe = RECIPES.get(kind)
    if recipe is not None:
        try:
            module = _module(model_class, recipe.config(config_class))
            told = runs(module, recipe.draw())
        except Exception as error:  # the library's own refusal, in this version of it
            told = f"{type(error).__name__}: {error}"
        if told is None:
            return Subject(module, (recipe.draw(), recipe.draw()))
        tried.append(f"recipe: {told}"[:300])
    started = time.monotonic()
    for form in FORMS:
        if time.monotonic() - started > PATIENCE:
            tried.append(f"{form} and later forms not tried")
            break
        try:
            config = shrunk(config_class, form)
            module = _module(model_class, config)
        except Exception as error:  # the library's own refusal; the next form may do
            tried.append(f"{form}: {type(error).__name__}: {error}"[:160])
            continue
        for make in candidates(module, config):
            try:
                told = runs(module, make())
            except NotBuilt as error:
                told = str(error)
            if told is None:
                return Subject(module, (make(), make()))
            tried.append(f"{form}: {told}")
    raise NotBuilt("; ".join(dict.fromkeys(tried)) or "no inputs known")


def _module(model_class: Any, config: Any) -> torch.nn.Module:
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > LIMIT:
        raise NotBuilt(f"{count / 1e6:.0f} million parameters")
    module: torch.nn.Module = model_class(config)
    return module
