"""Gradients: where backward is called, what is differentiated, what a Function does with its views.

In: chance. Out: programs of differentiable statements, Functions, hooks and modes, with `backward`
inside the compiled function or after it. Invariant: every Function is one of the forms that the
documentation of `torch.autograd.Function` allows.
"""

from __future__ import annotations

import random
from textwrap import indent

from integration_tests.campaign.program import Call, Program

#: statements on tensors of one shape; {a}, {b} are there already, {n} is made
SMOOTH = (
    "{n} = {a} * {b}", "{n} = {a} + {b}", "{n} = {a}.sin()", "{n} = {a}.exp() * 0.1",
    "{n} = {a} - {b} * 2", "{n} = {a}.tanh()", "{n} = torch.sigmoid({a}) * {b}",
    "{n} = {a}.cumsum(0)", "{n} = {a}.softmax(-1)", "{n} = {a} @ {b}.t() @ {b} * 0.1",
    "{n} = {a}.square()", "{n} = torch.where({a} > 0, {a}, {b})", "{n} = {a}.relu() + {b}",
    "{n} = {a} / (1 + {b} * {b})", "{n} = {a}.clone()", "{n} = {a} * {a}.sum()",
    "{n} = {a} + {b}[0]", "{n} = {a} * {b}[:, :1]", "{n} = torch.cat([{a}, {b}])[:3]",
    "{n} = torch.stack([{a}, {b}]).mean(0)", "{n} = {a}.flip(0)",
    "{n} = torch.nn.functional.layer_norm({a}, (4,))", "{n} = {a}.max(0)[0] + {b}",
    "{n} = {a}.gather(0, torch.zeros((3, 4), dtype=torch.int64, device=DEVICE))",
    "{n} = {a}.index_add(0, torch.tensor([0, 0, 2], device=DEVICE), {b})",
    "{n} = {a}.logsumexp(1, keepdim=True) + {b}",
    "{n} = torch.nn.functional.linear({a}, {b}.new_ones(4, 4), {b}[0])",
    "{n} = {a}.t().contiguous().t() + 1", "{n} = {a}.prod(0) + {b}", "{n} = {a}.norm() * {b}",
    "{n} = torch.nn.functional.gelu({a})", "{n} = {a}.pow(3)", "{n} = {a}.abs()",
    "{n} = {a}.clamp(-1, 1)", "{n} = {a}.var(0) + {b}", "{n} = {a}.double().float()",
    "{n} = {a}.cumprod(1)", "{n} = {a}.roll(1, 0) * {b}", "{n} = {a}.masked_fill({b} > 0, 0.5)",
    "{n} = torch.einsum('ij,ij->ij', {a}, {b})",
)  # fmt: skip
VIEWS = (
    "{n} = {a}.view(3, 4)", "{n} = {a}[:]", "{n} = {a}.t().t()",
    "{n} = {a}.unsqueeze(0).squeeze(0)", "{n} = {a}.expand(3, 4)",
    "{n} = {a}.reshape(12).view(3, 4)", "{n} = {a}.view_as({b})",
    "{n} = {a}.chunk(2, 1)[0].repeat(1, 2)", "{n} = {a}.detach()",
    "{n} = {a}.as_strided((3, 4), (4, 1))",
)  # fmt: skip
STEPS = (
    "{n} = {a} * 1\n{n}.mul_({b})", "{n} = {a} + 0\n{n}[0] = {b}[0]",
    "{n} = {a}.clone()\n{n}.t().add_(1)", "with torch.no_grad():\n    {n} = {a} * {b}",
    "{n} = torch.zeros_like({a})\n{n}.copy_({b})", "{n} = {a} * 2\n{n}.detach().mul_(3)",
    "{n} = {a} * 1.5\n{n}.retain_grad()\nKEPT.append({n})",
    "{n} = {a} * 2\n{n}.register_hook(lambda g: g * 3)",
    "{n} = {a} + 1\n{n}.register_hook(lambda g: LOG.append('hook {n}'))",
    "with torch.enable_grad():\n    {n} = {a} * {b}",
    "{n} = torch.utils.checkpoint.checkpoint("
    "lambda u, w: (u * w).sin(), {a}, {b}, use_reentrant=False)",
    "with torch.autocast(DEVICE, dtype=torch.bfloat16):\n"
    "    {n} = torch.nn.functional.linear({a}, {b}.new_ones(4, 4)).float()",
    "{n} = torch.utils.checkpoint.checkpoint(lambda u: u.exp().sin(), {a}, use_reentrant=True)",
    "with torch.set_grad_enabled({flag}):\n    {n} = {a}.cos()",
    "{n} = ({a} * {b}).requires_grad_()", "{n} = {a}.detach().requires_grad_()",
    "{n} = {a} * 1\n{n}[:, 1] *= 2", "{n} = {a} * 1\nview = {n}[1]\nview.mul_(2)",
    "{n} = {a} * 1\nbefore = {n} * {b}\n{n}.add_(1)\n{n} = {n} + before",
    "with torch.inference_mode():\n    idle = {a} * 2\n{n} = {a} + 1", "{n} = {a} * {b}.data",
    "{n} = torch.vmap(lambda r: r.sin() * 2)({a})",
    "{n} = torch.func.grad(lambda u: (u * u * {b}).sum())({a})",
    "{n} = torch.autograd.grad(({a} * {a} * {b}).sum(), {a}, create_graph={flag})[0] + {a}",
    "with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):\n"
    "    {n} = ({a} * {b}).sin() * {a}",
    "{n}, more = torch.var_mean({a}, 0)\n{n} = {n} + more + {b}",
)  # fmt: skip
#: hooks that do another thing each time that one is called
STATEFUL = """PACKED = []
def packed(t):
    PACKED.append(tuple(t.shape))
    return t.detach() * (1 + len(PACKED) / 8)
def unpacked(t):
    PACKED.append(None)
    return t + len(PACKED) / 8
SCALED = []
def scaled(place):
    def hook(g):
        SCALED.append((place, g is None))
        return None if g is None else g * (1 + len(SCALED) / 8)
    return hook"""

#: Function: forward's statements and result; backward's answer. {g}: gradient
RESULTS = (
    ("return x", "x itself"),
    ("return x.view_as(x)", "view"),
    ("return x * 2", "new"),
    ("return x.view(-1).view(3, 4)", "view"),
    ("return x.clone()", "new"),
    ("return x * 2, x * 3", "two"),
    ("return x.view_as(x), x * 3", "two"),
    ("return x, x * 2", "two"),
    ("return x[:2], x[1:]", "views"),
    ("y = x * 2\n        ctx.mark_non_differentiable(y)\n        return x * 3, y", "two"),
    ("x.mul_(2)\n        ctx.mark_dirty(x)\n        return x", "dirty"),
    ("return x.expand(2, 3, 4)", "view"),
    ("return x.t()", "view"),
    ("return x.detach()", "new"),
    ("return x * 2, 5", "two"),
    ("return x.sin(), None", "two"),
    ("return (x > 0).float()", "new"),
    ("return x.sum()", "new"),
    ("y = x.exp()\n        return y, y.view(-1)", "two"),
)  # fmt: skip
KEEPS = (
    "",
    "ctx.save_for_backward(x, w)",
    "ctx.x = x",
    "ctx.shape = x.shape",
    "ctx.set_materialize_grads(False)",
    "ctx.save_for_backward(x)\n        ctx.needs = ctx.needs_input_grad",
    "ctx.tag = 'a'",
)
ANSWERS = (
    "return {g} * 2, None", "return -{g}, {g}", "return {g}, {g} * 3",
    "LOG.append('backward')\n        return {g} * 0.5, None",
    "SEEN.add_(1)\n        return {g} * SEEN, None", "return {g}.clone(), None",
    "return None, {g}", "return {g} * 2 if ctx.needs_input_grad[0] else None, None",
    "{g}.mul_(1)\n        return {g} + 1, None",
    "LOG.append([g is None for g in grads])\n        return {g}, None",
    "return {g}.expand(3, 4) if {g}.dim() < 2 else {g}, None",
)  # fmt: skip


PREPARE = """g = grads[0]
        if g is None:
            g = torch.ones((3, 4), device=DEVICE)
        if g.shape != (3, 4):
            g = g.t() if g.shape == (4, 3) else g.sum() * torch.ones((3, 4), device=DEVICE)"""
"""Whatever the result was, its gradient has the input's shape."""
SECOND = (
    "first = torch.autograd.grad(sum((o * o).sum() for o in outs), "
    "[a for a in args if a.requires_grad], create_graph=True, allow_unused=True)",
    "sum((g * g).sum() for g in first if g is not None and g.requires_grad).backward()",
    "del first",
)
THIRD = (
    "wanted = [a for a in args if a.requires_grad]",
    "first = torch.autograd.grad(weighed(outs), wanted, create_graph=True, allow_unused=True)",
    "first = [g for g in first if g is not None and g.requires_grad]",
    "more = wanted + {results}",
    "second = torch.autograd.grad(sum(g.square().sum() for g in first), more, create_graph=True, "
    "allow_unused=True) if first else ()",
    "third = sum(g.square().sum() for g in second if g is not None and g.requires_grad)",
    "third = torch.autograd.grad(third, more, allow_unused=True) if second and "
    "isinstance(third, torch.Tensor) else None",
    "del wanted, first, more",
)
HOOKED = (
    "for place in chosen(len(outs)):\n    outs[place].register_hook(scaled(place))",
    "for place, o in enumerate(outs):\n    o.register_hook(scaled(place))",
    "if outs:\n    torch.autograd.graph.register_multi_grad_hook(outs, "
    "lambda g: SCALED.append(None if g is None else tuple(g.shape)), mode='any')",
    "if outs:\n    torch.autograd.graph.register_multi_grad_hook(outs, "
    "lambda gs: SCALED.append([g is None for g in gs]), mode='all')",
)
SOME = (
    "leaves = [a for a in args if a.requires_grad and a.is_leaf][{place}:{end}]",
    "if outs and leaves:\n    weighed(outs).backward(inputs=leaves, retain_graph={keep})",
    "if outs and leaves and {keep}:\n    weighed(outs[-1:]).backward(inputs=leaves)",
    "del leaves",
)


def function(chance: random.Random, name: str) -> str:
    """A Function of two tensors."""
    result, _ = chance.choice(RESULTS)
    keep = chance.choice(KEEPS)
    answer = chance.choice(ANSWERS)
    prepare = PREPARE
    if "save_for_backward(x, w)" in keep and chance.random() < 0.6:
        prepare += "\n        a, b = ctx.saved_tensors\n        g = g * b"
    lines = [
        f"class {name}(torch.autograd.Function):",
        "    @staticmethod",
        "    def forward(ctx, x, w):",
    ]
    lines += [f"        {keep}"] if keep else []
    lines += [
        f"        {result}",
        "    @staticmethod",
        "    def backward(ctx, *grads):",
        f"        {prepare}",
        f"        {answer.format(g='g')}",
    ]
    return "\n".join(lines)


def draw(chance: random.Random) -> Program:
    setup = ["import torch.utils.checkpoint", "KEPT = []\nSEEN = torch.zeros(1, device=DEVICE)"]
    order = chance.sample(range(8), 8)
    setup.append(f"{STATEFUL}\ndef chosen(n): return sorted(range(n), key={order}.__getitem__)")
    body: list[str] = []
    names = ["x0", "x1"]
    functions = []
    if chance.random() < 0.5:
        functions.append("F0")
        setup.append(function(chance, "F0"))
    for number in range(chance.randrange(1, 7)):
        n, a, b = f"v{number}", chance.choice(names[-3:]), chance.choice(names)
        form = chance.random()
        if functions and (form < 0.3 or number == 0):
            given = chance.choice((a, f"{a} * 2", f"{a} * 1"))
            text = f"{n} = {chance.choice(functions)}.apply({given}, {b})"
            if ", " in setup[3].partition("return")[2].split("\n")[0]:
                text += "[0]"
        else:
            table = SMOOTH if form < 0.7 else VIEWS if form < 0.8 else STEPS
            text = chance.choice(table).format(n=n, a=a, b=b, flag=chance.random() < 0.5)
        body.append(text)
        names.append(n)
    results = [n for n in names if chance.random() < 0.35] or [names[-1]]
    if names[-1] not in results:
        results.append(names[-1])
    loss = " + ".join(
        f"(0.0 if {r}.dtype != torch.float32 or not {r}.requires_grad else ({r} * {k + 1}).sum())"
        for k, r in enumerate(results)
    )
    after: list[str] = []
    where = chance.random()
    if where < 0.3:
        body.append(f"loss = {loss}\nloss.backward()")
        results = results if chance.random() < 0.5 else [f"{r}.detach()" for r in results]
    elif where < 0.4:
        body.append(
            f"loss = {loss}\ngrads = torch.autograd.grad("
            "loss, [t for t in (x0, x1) if t.requires_grad], allow_unused=True)"
        )
        results.append("grads")
    else:
        outs = ["outs = [o for o in out if isinstance(o, torch.Tensor) and o.requires_grad]"]
        if chance.random() < 0.2:
            outs += chance.sample(HOOKED, chance.randrange(1, 3))
        form = chance.random()
        if form < 0.12:
            outs += SECOND
        elif form < 0.24:
            outs += [x.format(results=chance.choice(("[]", "[]", "outs[:1]"))) for x in THIRD]
        elif form < 0.36:
            place, keep = chance.randrange(2), chance.random() < 0.5
            more = {"place": place, "end": place + chance.randrange(1, 3), "keep": keep}
            outs += [x.format(**more) for x in SOME]
        else:
            outs += ["if outs:\n    weighed(outs).backward()"]
            if chance.random() < 0.1:
                outs[-1] = (
                    outs[-1].replace("backward()", "backward(retain_graph=True)")
                    + "\n    sum(o.sum() for o in outs).backward()"
                )
        after = [*outs, "del outs"]
        if "KEPT" in str(body):
            after.append("KEPT_GRADS = [k.grad for k in KEPT]")

    def call(shift: int) -> Call:
        wanted = chance.choice(
            ((True, True), (True, True), (True, False), (False, True), (False, False))
        )
        arguments = {}
        for k, grad in enumerate(wanted):
            text = f"make((3, 4), torch.float32, {chance.randrange(90) + shift}, 'normal')"
            arguments[f"x{k}"] = f"leaf({text})" if grad else text
        if wanted[0] and chance.random() < 0.2:
            arguments["x0"] += ".mul(1)" if chance.random() < 0.5 else ".t().t()"
        if chance.random() < 0.07:
            arguments["x1"] = "x0_made" if False else arguments["x1"]
        return Call(arguments, (), tuple(after))

    if chance.random() < 0.06:
        lines = indent("\n".join(body), "    ")
        body = [f"with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):\n{lines}"]
    calls = [call(0) for _ in range(chance.choice((1, 2, 2, 3)))]
    if chance.random() < 0.15:
        calls[-1] = Call(
            calls[-1].arguments,
            ("torch.set_grad_enabled(False)",),
            ("torch.set_grad_enabled(True)",),
        )
    return Program("autograd", 0, tuple(body), tuple(results), tuple(calls), tuple(setup))
