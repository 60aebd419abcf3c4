"""All that a played program can be told by.

In: a program, what wraps its function. Out: one `Seen` a call: results, arguments, globals, what
was printed, what was raised. Invariant: values are copied when the call is over, with their
strides; nothing that is looked at is changed.
"""

from __future__ import annotations

import contextlib
import gc
import io
import random
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from integration_tests.campaign.program import PRELUDE, Program

DEPTH = 12
SEE_ENDS = ("__del__", "weakref", "finalize")
"""Words of programs that see when an object ends."""
_prelude = compile(PRELUDE, "<values>", "exec")
_worlds = 0


@dataclass(frozen=True)
class Kept:
    """A tensor as it was. share, same: the first path that has its memory, or is it."""

    value: torch.Tensor
    facts: dict[str, Any]
    share: str
    same: str


@dataclass
class Seen:
    """One call. leaves: tensors and plain values by path."""

    leaves: dict[str, Any] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    printed: str = ""


@dataclass
class Setting:
    """Where a program is played. nudge: see `values`. behind: what backward passes make on a device
    is numbered before what the program makes, not after it."""

    device: str = "cpu"
    wide: bool = False
    nudge: int = 0
    behind: bool = False


def namespace(setting: Setting) -> dict[str, Any]:
    """The globals of a world, with the names that programs may use."""
    global _worlds
    _worlds += 1
    module = types.ModuleType("campaign_world")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    space = module.__dict__
    exec(_prelude, space)
    space.update(DEVICE=setting.device, WIDE=setting.wide, NUDGE=setting.nudge)
    space.update(random=random, WORLD=f"w{_worlds}", LOG=[], MODULE=module)
    return space


class _Source:
    """A module's loader, which has all of a program's text: a file says what sets its globals."""

    def __init__(self, program: Program) -> None:
        calls = [each for call in program.calls for each in (*call.before, *call.after)]
        self.text = "\n".join((PRELUDE, *program.setup, program.function(), *calls))

    def get_code(self, name: str) -> types.CodeType:
        return compile(self.text, "<world>", "exec")


def played(
    program: Program, wrap: Callable[[Any], Any], setting: Setting | None = None
) -> list[Seen]:
    """Play the whole program; the first exception of the setup is raised, those of calls kept.

    What programs switch in torch is as it was, before and after. Where they see objects end, those
    in cycles end after a call, never within."""
    lines = "\n".join((*program.setup, *program.body)).splitlines()
    used = "\n".join(line for line in lines if not line.lstrip().startswith("import "))
    collects = any(word in used for word in SEE_ENDS) and gc.isenabled()
    torch.set_grad_enabled(True)
    if collects:
        gc.disable()
        gc.freeze()  # collections look at what the program made alone
    try:
        return _played(program, wrap, setting, collects)
    finally:
        torch.set_grad_enabled(True)
        if collects:
            gc.unfreeze()
            gc.enable()


AHEAD = 10_000
"""More autograd nodes than a program makes."""


class _Numbered(torch.autograd.Function):
    """In its backward pass the thread that runs it makes nodes up to a number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, end: int) -> torch.Tensor:
        ctx.end = end
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        _number_up_to(ctx.end)
        return grads[0], None


def _number_up_to(end: int) -> None:
    with torch.enable_grad():
        one = torch.ones((), requires_grad=True)
        while torch._C._autograd._get_sequence_nr() < end:
            one.view(())


def number_ahead(device: str, behind: bool = False) -> None:
    """Let what backward passes make on a device be numbered after what the program makes; `behind`:
    before it.

    The engine runs the node of the highest number first, and each thread counts its own: on a
    device it depends on what the process has run before which of two hooks a second derivative
    calls first. On a CPU all is made by one thread."""
    if device != "cpu":
        end = torch._C._autograd._get_sequence_nr() + AHEAD
        _Numbered.apply(torch.ones((), device=device, requires_grad=True), end).backward()  # type: ignore[no-untyped-call]
        if behind:
            _number_up_to(end + AHEAD)


def _played(
    program: Program, wrap: Callable[[Any], Any], setting: Setting | None, collects: bool
) -> list[Seen]:
    space = namespace(setting or Setting())
    space["__loader__"] = _Source(program)
    hidden = set(space) - {"LOG"}
    _execute(program, "\n".join(program.setup), space, "setup")
    _execute(program, program.function(), space, "function")
    hidden |= {"target", "f", "args", "out"}
    target = space["target"] = wrap(eval(program.target, space))
    number_ahead(space["DEVICE"], setting is not None and setting.behind)
    found = []
    for number, call in enumerate(program.calls):
        seed_all(program.seed, space["DEVICE"])
        seen, told = Seen(), io.StringIO()
        with contextlib.redirect_stdout(told):
            _execute(program, "\n".join(call.before), space, f"before {number}")
            args = {name: eval(text, space) for name, text in call.arguments.items()}
            space.update(args)
            space["args"], space["out"] = tuple(args.values()), None
            hidden |= set(args)
            versions = {name: _version(value) for name, value in args.items()}
            try:
                space["out"] = target(*args.values())
                _execute(program, "\n".join(call.after), space, f"after {number}")
            except Exception as error:
                said = _unplaced(str(error).replace(space["WORLD"], "world"))
                seen.error = (type(error).__name__, said.splitlines()[0] if said else "")
        if collects:
            gc.collect()
        if torch.cuda.is_initialized():  # copies to the host may be under way
            torch.cuda.synchronize()
        seen.printed = _unplaced(told.getvalue())
        seen.leaves["grad mode"] = torch.is_grad_enabled()
        roots = {f"argument {name}": value for name, value in args.items()}
        roots |= {"result": space["out"]}
        for name, value in space.items():
            if name not in hidden and not name.startswith("__"):
                roots[f"global {name}"] = value
        seen.leaves |= looked_at(roots)
        for name, value in args.items():
            if isinstance(value, torch.Tensor):
                seen.leaves[f"argument {name} written"] = _version(value) != versions[name]
        found.append(seen)
    return found


def seed_all(seed: int, device: str) -> None:
    """`torch.manual_seed` asks every kind of device, which takes a millisecond."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.manual_seed(seed)


def _version(value: Any) -> int:
    plain = isinstance(value, torch.Tensor) and not value.is_inference()
    return value._version if plain else 0


def _execute(program: Program, text: str, space: dict[str, Any], what: str) -> None:
    if text:
        exec(compile(text, f"<{program.name} {what}>", "exec"), space)


def looked_at(roots: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves by path, of all roots in order."""
    storages: dict[int, str] = {}
    objects: dict[int, str] = {}
    alive: list[Any] = []  # an id is that of one object as long as this object lives
    leaves: dict[str, Any] = {}
    for root, value in roots.items():
        for path, found in _walk(value, root, objects, alive, 0):
            if isinstance(found, torch.Tensor):
                alive.append(found)
                leaves[path] = _kept(found, path, storages, objects)
            else:
                leaves[path] = found
    return leaves


def _kept(t: torch.Tensor, path: str, storages: dict[int, str], objects: dict[int, str]) -> Kept:
    try:
        return _copy(t, path, storages, objects)
    except RuntimeError as error:  # a view that autograd refuses to look at
        return Kept(torch.zeros(0), {"refused": str(error)[:60]}, path, path)


def _copy(t: torch.Tensor, path: str, storages: dict[int, str], objects: dict[int, str]) -> Kept:
    facts: dict[str, Any] = {
        "type": type(t).__name__, "dtype": t.dtype, "shape": tuple(t.shape),
        "requires_grad": t.requires_grad, "leaf": t.is_leaf, "device": t.device.type,
        "layout": t.layout,
    }  # fmt: skip
    share = path
    value = t.detach()
    if t.layout == torch.strided and not t.is_nested:
        facts["stride"] = t.stride()
        if t.numel():
            facts["offset"] = t.storage_offset()
            share = storages.setdefault(t.untyped_storage()._cdata, path)
        facts["conj"], facts["neg"] = t.is_conj(), t.is_neg()
        value = _copied(t)
    same = objects.setdefault(id(t), path)
    return Kept(value, facts, share, same)


def _copied(t: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        plain = t.detach().resolve_conj().resolve_neg()
        copy = torch.empty_strided(plain.shape, plain.stride(), dtype=t.dtype, device=t.device)
        if any(s == 0 and n > 1 for s, n in zip(plain.stride(), plain.shape, strict=True)):
            return plain.clone()
        try:
            return copy.copy_(plain)
        except RuntimeError:  # it overlaps itself
            return plain.clone()


PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)


def _walk(
    value: Any, path: str, objects: dict[int, str], alive: list[Any], depth: int
) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        if value.is_leaf and value.grad is not None:
            yield f"{path}.grad", value.grad
        return
    if isinstance(value, PLAIN):
        yield path, f"{type(value).__name__} {_unplaced(repr(value))}"
        return
    if id(value) in objects:
        yield path, f"is {objects[id(value)]}"
        return
    if depth > DEPTH or isinstance(value, types.ModuleType):
        return
    objects[id(value)] = path
    alive.append(value)
    kind = type(value).__name__
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = _items(value)
    elif isinstance(value, list | tuple):
        inner = [(f"[{number}]", item) for number, item in enumerate(value)]
        inner += [(f".{k}", v) for k, v in getattr(value, "__dict__", {}).items()]
    elif isinstance(value, set | frozenset):
        yield path, f"{kind} {sorted(_unplaced(repr(item)) for item in value)}"
        return
    elif isinstance(value, types.FunctionType):
        inner = [(".defaults", value.__defaults__), (".dict", dict(value.__dict__))]
        inner += [
            (f".cell {name}", cell.cell_contents)
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            if _filled(cell)
        ]
        if value.__module__ != "campaign_world":
            inner = []
    elif isinstance(value, type):
        if value.__module__ == "campaign_world":
            inner = [(f".{k}", v) for k, v in vars(value).items() if not k.startswith("__")]
    elif isinstance(value, torch.nn.Module):
        inner = [(f".{k}", v) for k, v in vars(value).items() if "hook" not in k and k[:1] != "_"]
        inner += [(f".{k}", dict(vars(value)[k])) for k in ("_parameters", "_buffers", "_modules")]
    elif isinstance(value, torch.optim.Optimizer):
        inner = [(".groups", value.param_groups), (".state", list(value.state.values()))]
    elif type(value).__module__ == "campaign_world":
        inner = [(f".{k}", v) for k, v in getattr(value, "__dict__", {}).items()]
        slots = [s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())]
        slots = [name for name in slots if not name.startswith("__")]
        inner += [(f".{s}", getattr(value, s)) for s in slots if hasattr(value, s)]
    yield f"{path} kind", kind
    for step, item in inner:
        yield from _walk(item, path + step, objects, alive, depth + 1)


def _unplaced(text: str) -> str:
    """The text without where in memory something is."""
    return re.sub(r"\b0x[0-9a-f]{6,}", "0x", text)


def _items(value: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    try:
        return [(f"[{key!r}]", item) for key, item in value.items() if _steady(key)]
    except Exception as error:  # a mapping of the program's own, or around what is none
        return [(f".{type(error).__name__}", None)]


def _steady(key: Any) -> bool:
    return isinstance(key, (*PLAIN, tuple)) and not str(key).startswith("__")


def _filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None) or True
    except ValueError:
        return False
