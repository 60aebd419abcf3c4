"""Modes of torch inside captured functions: gradients, inference, autocast, devices, labels."""

import torch
from torch import nn


def x(grad=False):
    return torch.randn(3, 4, requires_grad=grad)


def test_grad_modes(agree):
    def run(a):
        with torch.no_grad():
            first = a * 2
            with torch.enable_grad():
                second = a * 3
        torch.set_grad_enabled(False)
        third = a.sin()
        torch.set_grad_enabled(True)
        with torch.set_grad_enabled(a.shape[0] > 5):
            fourth = a.cos()
        return first, second, third, fourth, a * first

    agree(run, x(True))


def test_grad_mode_decorators(agree):
    @torch.no_grad()
    def frozen(a):
        return a * 2

    agree(lambda a: frozen(a) + a, x(True))


def test_inference_mode_inside(agree):
    def run(a, b):
        with torch.inference_mode():
            c = a * 2
            flag = c.is_inference(), torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            d = b * 3
        return flag, d

    agree(run, x(), x(True))


def test_a_break_inside_inference_mode(agree):
    def run(a):
        with torch.inference_mode():
            b = a * 2
            print(end="")
            c = b + 1
        return c.is_inference(), a + 1

    agree(run, x(), graphs=None)


def test_the_grad_mode_after_a_break_inside_inference_mode(capture):
    def run(a):
        with torch.no_grad():
            with torch.inference_mode():
                b = a * 2
                print(end="")
            inside = torch.is_grad_enabled()
        return b, inside, a * 2

    given = x(True)
    _, inside, last = capture(run)(given)
    assert not inside and last.requires_grad and torch.is_grad_enabled()


def test_autocast_inside_and_nested(agree):
    def run(m, a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            first = m(a)
            with torch.autocast("cpu", enabled=False):
                second = m(a)
        return first, second, m(a)

    agree(run, nn.Linear(4, 4), x())


def test_default_device(agree):
    def run(a):
        with torch.device("meta"):
            shape = torch.zeros(3, 4)
            where = torch.get_default_device()
        with torch.device("cpu"):
            other = torch.ones(3, 4)
        return a + other, shape.device, where, torch.zeros(2).device

    agree(run, x())


def test_a_break_inside_a_device(agree):
    def run(a):
        with torch.device("meta"):
            print(end="")
            made = torch.empty(2)
        return a + 1, made.device

    agree(run, x(), graphs=0)  # a device is a mode of torch functions: under it nothing is captured


def test_profiler_labels_are_passed_over(agree):
    def run(a):
        with torch.profiler.record_function("part"):
            b = a * 2
            with torch.autograd.profiler.record_function("inner", "args"):
                b = b + 1
        return b

    agree(run, x())


def test_questions_about_compiling(capture):
    def run(a):
        asked = torch.compiler.is_compiling(), torch.jit.is_scripting(), torch.jit.is_tracing()
        return a + 1, asked

    assert capture(run)(x())[1] == (True, False, False)


def test_state_of_modes_after_an_exception(agree):
    def run(a):
        try:
            with torch.no_grad():
                b = a * 2
                raise ValueError("inside")
        except ValueError:
            return b, a * 2, torch.is_grad_enabled()

    agree(run, x(True))
