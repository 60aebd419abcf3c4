"""Transforms of `torch.func`, nested, around and inside of what is compiled.

In: chance. Out: a function of one to three operators of torch's database or one of this file, under
one to three transforms, called inside of the compiled function, or the compiled function under
them. Invariant: which argument has which batch dimension is known at every level; what eager does
not take is drawn seldom, for its error.
"""

from __future__ import annotations

import random
import warnings

import torch

from integration_tests.campaign.families.operators import Drawing
from integration_tests.campaign.observing import Setting, namespace
from integration_tests.campaign.program import Call, Program

TOTAL = """def total(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return sum((each * 0.5).sum() for each in leaves if each.dtype.is_floating_point)
def ones(value):
    return torch.utils._pytree.tree_map(torch.ones_like, value)"""
#: bodies of `g(a, b)` beside those of the database: writes, views, constants, control flow
BODIES = (
    "v = a * 1\nv.mul_(b)\nreturn v", "v = a.clone()\nv[0] = 2\nreturn v * b",
    "v = torch.zeros_like(a)\nv.copy_(b)\nreturn v * a", "return a.sin(), b.cos()",
    "v = (a * b).reshape(-1)\nreturn v[1:] - v[:-1]", "return {'p': a * 2, 'q': (b, a.sum())}",
    "return torch.where(a > b, a, b)", "return a * a.max() + b.argmax()",
    "v = a * 1\nw = v.t() if v.dim() == 2 else v[...]\nw.add_(1)\nreturn v * b",
    "return a * torch.arange(a.shape[-1], device=DEVICE, dtype=a.dtype)",
    "return (a * SEEN).tanh() + b", "return a.detach() * b", "return a.to(torch.float64) * b",
    "with torch.no_grad():\n    c = a * b\nreturn c + a", "return torch.cat([a, b]).cumsum(0)",
    "v = [a, b]\nfor each in v:\n    a = a * each.mean()\nreturn a",
    "return a.expand(2, *a.shape) * 2", "v = a * b\nreturn v.unfold(0, 2, 1) if v.dim() else v",
    "return a.sum(), a.shape[0] * b", "return torch.func.grad(lambda u: (u * b).sin().sum())(a)",
    "return torch.vmap(lambda u: u * 2)(a) + b", "return a @ b.t() if a.dim() == 2 else a @ b",
    "return torch.func.jvp(torch.sin, (a,), (b,))[1]", "return b",
    "return a.new_zeros(3) + a.sum()", "return torch.nn.functional.layer_norm(a, a.shape[-1:]) * b",
    "return a.sort(-1)[0], a.sort(-1)[1]",
    "return a.index_put((torch.tensor([0, 1], device=DEVICE),), b[:2])", "return a.prod() * b",
    "a = a * 1\na += b\nreturn a", "return torch.linalg.norm(a) * b",
    "return a.pow(2).mul(b).sqrt()", "return a.softmax(-1).log() * b",
    "return torch.einsum('...i,...i->...', a, b)",
)  # fmt: skip
RANDOM = (
    "return a * torch.rand_like(b)", "return torch.nn.functional.dropout(a, 0.5) + b",
    "return torch.bernoulli(torch.full_like(a, 0.5)) * b",
    "return a + torch.randn(3, device=DEVICE)[0]",
)  # fmt: skip
SHAPES = ((3,), (2, 3), (3, 3), (1, 2), (2, 2, 2))
PLAIN = (
    "{x} = {x} * 1", "{x} = {x}[...]", "{x} = {x} + SEEN", "{x} = {x}.clone()",
    "with torch.no_grad():\n    {x} = {x} * 2", "SEEN.add_(1)",
)  # fmt: skip


class Form:
    """A callable as text, with the shapes of its arguments. floating: those with gradients."""

    def __init__(self, chance: random.Random, name: str, inputs: dict[str, str]) -> None:
        self.chance, self.text = chance, name
        self.inputs = dict(inputs)
        self.floating = [n for n, t in enumerate(inputs.values()) if ", torch.float" in t]

    def batched(self) -> bool:
        """One more `vmap`: some arguments get one more dimension."""
        chance, size = self.chance, self.chance.choice((1, 2, 3))
        names = [n for n, t in self.inputs.items() if t.startswith("make(")]
        chosen = [n for n in names if chance.random() < 0.7] or names[:1]
        if not chosen:
            return False
        places = []
        for name, text in self.inputs.items():
            if name not in chosen:
                places.append("None")
                continue
            shape, rest = text[5:].split(")", 1)
            sizes = [each for each in shape.strip("(").split(",") if each.strip()]
            at = chance.choice((0, 0, 0, len(sizes), chance.randrange(len(sizes) + 1)))
            places.append(str(at if chance.random() < 0.8 else at - len(sizes) - 1))
            sizes.insert(at, str(size))
            self.inputs[name] = f"make(({', '.join(s.strip() for s in sizes)},){rest}"
        extra = ""
        if chance.random() < 0.25:
            extra += f", out_dims={chance.choice((0, 1, -1))}"
        extra += f", randomness={chance.choice(('same', 'different'))!r}" * (chance.random() < 0.2)
        extra += f", chunk_size={chance.choice((1, 2))}" * (chance.random() < 0.2)
        self.text = f"torch.func.vmap({self.text}, in_dims=({', '.join(places)},){extra})"
        return True

    def differentiated(self) -> bool:
        chance, g = self.chance, self.text
        if not self.floating:
            return False
        some = self.floating if chance.random() < 0.2 else chance.choice(self.floating)
        at = f"argnums={tuple(some) if isinstance(some, list) else some}"
        every = len(self.floating) == len(self.inputs)
        tangents = "tuple(ones(t) for t in a)" if chance.random() < 0.6 else "a"
        forms = [
            f"torch.func.grad(lambda *a: total({g}(*a)), {at})",
            f"torch.func.grad_and_value(lambda *a: total({g}(*a)), {at})",
            f"torch.func.grad(lambda *a: (lambda v: (total(v), v))({g}(*a)), {at}, has_aux=True)",
            f"torch.func.jacrev({g}, {at})", f"torch.func.jacrev({g}, {at}, chunk_size=2)",
            f"torch.func.jacfwd({g}, {at})", f"torch.func.hessian(lambda *a: total({g}(*a)), {at})",
            f"(lambda *a: (lambda p: p[1](ones(p[0])))(torch.func.vjp({g}, *a)))",
            f"(lambda *a: torch.autograd.functional.jacobian({g}, a))",
        ]  # fmt: skip
        if every:
            forms += [
                f"(lambda *a: torch.func.jvp({g}, a, {tangents}))",
                f"(lambda *a: torch.func.linearize({g}, *a)[1](*{tangents}))",
            ]
        self.text = chance.choice(forms)
        return True

    def wrap(self) -> bool:
        form = self.chance.random()
        if form < 0.45:
            return self.batched()
        if form < 0.93:
            return self.differentiated()
        remove = self.chance.choice(("mutations", "mutations_and_views"))
        self.text = f"torch.func.functionalize({self.text}, remove={remove!r})"
        return True


def inner(chance: random.Random) -> tuple[dict[str, str], list[str]] | None:
    """Inputs and statements of the function that is transformed."""
    if chance.random() < 0.45:
        table = BODIES if chance.random() < 0.88 else RANDOM
        shape = chance.choice(SHAPES)
        dtype = chance.choice((torch.float32, torch.float32, torch.float64))
        inputs = {
            name: f"make({shape}, {dtype}, {chance.randrange(90)}, 'normal', 'dense')"
            for name in "ab"
        }
        return inputs, chance.choice(table).split("\n")
    drawing = Drawing(chance)
    wanted = chance.choice((1, 1, 2, 3))
    for _ in range(12):
        if drawing.statement() and len(drawing.body) == wanted:
            break
    if not drawing.body or not 0 < len(drawing.inputs) < 4:
        return None
    if any(v.numel() > 40 for _, v in drawing.tensors()):
        return None
    return drawing.inputs, [*drawing.body, f"return {drawing.values[-1]}"]


def attempt(chance: random.Random) -> Program | None:
    found = inner(chance)
    if found is None:
        return None
    inputs, lines = found
    names = [*inputs]
    text = f"def g({', '.join(names)}):\n" + "\n".join(f"    {line}" for line in lines)
    outside = chance.random() < 0.2
    form = Form(chance, "target" if outside else "g", inputs)
    for _ in range(chance.choice((1, 1, 2, 2, 3))):
        form.wrap()
    if form.text in ("g", "target"):
        return None
    if "linearize(" in form.text and "copy_(" in text:
        return None  # eager runs the trace of one with a write again on what it has written
    if "functionalize(" in form.text and "copy_(" in text:
        return None  # torch's copy that writes nothing has no derivative: eager's pass raises there
    called = f"{form.text}({', '.join(names)})"
    setup = [TOTAL, "SEEN = torch.ones(1, device=DEVICE)", text]
    space = namespace(Setting())
    try:
        for each in (*setup, *(f"{n} = {t}" for n, t in form.inputs.items())):
            exec(each, space)
        exec("target = g", space)
        exec(f"answer = {called}", space)
    except Exception:
        if chance.random() < 0.97:
            return None
    body: list[str] = []
    after: list[str] = []
    if outside:
        body = [f"v0 = g({', '.join(names)})"]
        after = [f"answer = {form.text}({', '.join(form.inputs.values())})"]
    else:
        body = [chance.choice(PLAIN).format(x=names[0])] if chance.random() < 0.3 else []
        body.append(f"v0 = {called}")
        if chance.random() < 0.2:
            body.append("v1 = torch.utils._pytree.tree_map(lambda t: t * 2, v0)")
    results = [line.partition(" = ")[0] for line in body if line[0] == "v"]
    calls = []
    learning = not outside and chance.random() < 0.3
    if learning:
        after.append(
            "outs = [o for o in torch.utils._pytree.tree_leaves(out) if o.requires_grad]\n"
            "if outs:\n    total(outs).backward()\ndel outs"
        )
    for k in range(chance.choice((1, 2, 2))):
        arguments = {
            n: t.replace(", torch.float32, ", f", torch.float32, {k + 1}")
            for n, t in (form.inputs if not outside else inputs).items()
        }
        if learning:
            arguments = {
                n: f"leaf({t})" if ", torch.float" in t and chance.random() < 0.7 else t
                for n, t in arguments.items()
            }
        calls.append(Call(arguments, (), tuple(after)))
    return Program("transforms", 0, tuple(body), tuple(results), tuple(calls), tuple(setup))


def draw(chance: random.Random) -> Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            program = attempt(chance)
            if program is not None:
                return program
    raise RuntimeError("no transform was found that eager takes")
