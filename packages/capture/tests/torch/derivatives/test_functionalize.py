"""torch.func.functionalize: its function, where the results are laid out and shared alike."""

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.api import compiler_of
from torch.func import functionalize, grad, vmap
from torch.utils._pytree import tree_leaves

REMOVE = ("mutations", "mutations_and_views")


def multiplied_in_place(a, b):
    made = a * 1
    made.mul_(b)
    return made


def written_through_a_view(a, b):
    made = a * b
    made.t().add_(1)
    return made


def writes_its_argument(a, b):
    a.mul_(b)
    return b + 1


def gives_what_it_writes(a, b):
    a.mul_(b)
    return a


FUNCTIONS = {
    "computes": lambda a, b: {"sum": a.sin() * b, "rest": (b.sum(), a - b)},
    "multiplied in place": multiplied_in_place,
    "written through a view": written_through_a_view,
    "writes its argument": writes_its_argument,
    "gives what it writes": gives_what_it_writes,
    "gives an argument": lambda a, b: (a, a * b),
    "a row": lambda a, b: a[0],
    "views": lambda a, b: (a.view(-1), b.t().reshape(-1)),
    "transposed": lambda a, b: a.t() + 1,
}
FORMS = {
    "alone": lambda fn, remove: functionalize(fn, remove=remove),
    "mapped": lambda fn, remove: vmap(functionalize(fn, remove=remove)),
    "of a map": lambda fn, remove: functionalize(vmap(fn), remove=remove),
    "differentiated": lambda fn, remove: grad(
        lambda a, b: sum(leaf.sum() for leaf in tree_leaves(functionalize(fn, remove=remove)(a, b)))
    ),
}


def _seen(call):
    torch.manual_seed(0)
    given = torch.randn(3, 3), torch.randn(3, 3)
    try:
        leaves = tree_leaves(call(*given))
    except RuntimeError as error:
        return str(error).splitlines()[0]
    memory = [each.untyped_storage().data_ptr() for each in (*given, *leaves)]
    same = [[leaf is each for each in given] for leaf in leaves]
    laid = [(leaf.shape, leaf.stride()) for leaf in leaves]
    return list(map(memory.index, memory)), same, laid, [x.tolist() for x in (*given, *leaves)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functionalized_functions(name):
    for remove in REMOVE:
        for form in FORMS.values():

            def call(a, b, form=form, remove=remove):
                return form(FUNCTIONS[name], remove)(a, b)

            compiled = fc.compile(call, backend="eager")
            expected = _seen(call)
            assert _seen(compiled) == expected
    plain = fc.compile(lambda a, b: functionalize(FUNCTIONS[name])(a, b), backend="eager")
    plain(torch.randn(3, 3), torch.randn(3, 3))
    assert len(compiler_of(plain).records.breaks) == (name == "gives what it writes")


def test_effects_happen_once():
    """The function is looked at before it is a part of the graph."""

    def call(a):
        numbers, seen = iter(range(9)), []

        def fn(t):
            seen.append(next(numbers))
            return t * (1 + len(seen))

        return functionalize(fn)(a), next(numbers), seen

    compiled = fc.compile(call, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(2)), call(torch.ones(2)))


@pytest.mark.parametrize("name", ["requires_grad", "is_leaf", "grad_fn", "grad"])
def test_what_a_functionalized_function_asks_of_the_history_of_its_arguments(name):
    def call(a):
        for known in (a, a * 2):
            a = a + functionalize(lambda t: t * (3 if getattr(t, name) else 5))(known)
        return a

    given = torch.ones(2, requires_grad=True)
    assert fc.compile(call, backend="eager")(given).tolist() == call(given).tolist()


def test_why_a_transform_was_left_to_python():
    """What it calls, which runs as it is, is reported with the end of the graph that led there."""

    def written(a):
        a.mul_(2)
        return a

    fn = fc.compile(lambda a: functionalize(written)(a * 1) + 1, backend="eager")
    fn(torch.ones(2))
    ((function, why),) = compiler_of(fn).records.skipped
    assert function == "written" and why.startswith("FB0027")
    assert why.endswith(
        "FB0005 torch.func.functionalize, of which the results are laid out otherwise"
    )
