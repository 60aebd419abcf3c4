"""Stack depths: at most, before each instruction, and where there is none."""

import pytest
from flambeau_capture.bytecode import StackError, decode, depths, max_depth, stack_effect
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import VERSION


def body_of(*instructions):
    body = decode((lambda a: a).__code__)
    body.instructions = [*s.resume(), *instructions]
    return body


def test_depth_before_each_instruction():
    one, two, add, ret = (
        s.load_const(1)[0],
        s.load_const(2)[0],
        Instruction("BINARY_OP", argval="+"),
        None,
    )
    (ret,) = s.return_value()
    body = body_of(one, two, add, ret)
    found = depths(body)
    assert [found[i] for i in (one, two, add, ret)] == [0, 1, 2, 1]
    assert max_depth(body) == 2


def test_a_jump_has_its_own_effect():
    target = s.nop()[0]
    assert stack_effect(s.jump(target)[0], jump=True) == 0
    assert stack_effect(s.jump_if("none", target)[-1], jump=True) == -1
    assert stack_effect(Instruction("FOR_ITER", target=target), jump=False) == 1
    assert stack_effect(Instruction("FOR_ITER", target=target), jump=True) == (
        -1 if VERSION < (3, 12) else 1
    )


def test_flags_count():
    plain, ready = s.load_global("f")[0], s.load_global("f", push_null=True)[0]
    assert stack_effect(plain, jump=False) == 1
    assert stack_effect(ready, jump=False) == 2
    assert stack_effect(s.load_attr("a")[0], jump=False) == 0
    assert stack_effect(s.load_method("a")[0], jump=False) == 1


def test_handlers_start_above_their_region():
    def f(x):
        with x:
            return x.y

    body = decode(f.__code__)
    found = depths(body)
    for region in body.regions:
        assert found[region.handler] == region.depth + 1 + region.lasti
        assert found[region.start] >= region.depth


def test_unreachable_code_has_no_depth():
    dead = s.pop_top()[0]
    body = body_of(*s.load_const(1), *s.return_value(), dead, *s.raise_varargs(0))
    assert dead not in depths(body)
    assert max_depth(body) == 1


def test_underflow_disagreement_and_falling_off_are_refused():
    with pytest.raises(StackError, match="takes more values"):
        depths(body_of(*s.pop_top(), *s.load_const(1), *s.return_value()))
    with pytest.raises(StackError, match="past the last"):
        depths(body_of(*s.load_const(1)))
    meet = s.load_const(3)[0]
    roads = [*s.load_const(1), *s.jump_if("none", meet), *s.load_const(2)]
    with pytest.raises(StackError, match="reached with"):
        depths(body_of(*roads, meet, *s.return_value()))
    with pytest.raises(StackError, match="needs a number"):
        depths(body_of(Instruction("BUILD_LIST"), *s.return_value()))


@pytest.mark.parametrize("kind", ["generator", "coroutine", "asynchronous"])
def test_generators_start_with_the_value_sent(kind):
    def generator():
        yield 1

    async def coroutine():
        return 1

    async def asynchronous():
        yield 1

    code = {"generator": generator, "coroutine": coroutine, "asynchronous": asynchronous}[kind]
    body = decode(code.__code__)
    found = depths(body)
    resume = next(i for i in body.instructions if i.opname == "RESUME")
    assert found[resume] == 0
    assert max_depth(body) == code.__code__.co_stacksize
