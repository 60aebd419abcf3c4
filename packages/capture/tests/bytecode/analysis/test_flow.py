"""Blocks, reachability, regions over edited bodies."""

import pytest
from flambeau_capture.bytecode import FlowError, Region, blocks, decode, reachable, remove_dead_code
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.flow import covering, keep, positions_in, successors


def sample(a, b):
    try:
        if a:
            b = a.x
        return b
    except AttributeError:
        return None


def test_blocks_partition_the_body():
    body = decode(sample.__code__)
    parts = blocks(body)
    assert [i for block in parts for i in block.instructions] == body.instructions
    targets = {i.target for i in body.instructions if i.target is not None}
    for block in parts:
        assert not targets & set(block.instructions[1:])
        assert block.index == parts.index(block)
    assert {block.handler for block in parts} != {None}


def test_successors_of_a_branch_are_the_next_and_the_target():
    body = decode(sample.__code__)
    branch = next(i for i in body.instructions if i.opname == "POP_JUMP_IF_FALSE")
    following = body.instructions[body.instructions.index(branch) + 1]
    assert successors(body)[branch] == (following, branch.target)
    last = next(i for i in body.instructions if i.opname == "RETURN_VALUE")
    assert successors(body)[last] == ()


def test_handlers_are_reached_through_what_they_cover():
    body = decode(sample.__code__)
    assert reachable(body) == set(body.instructions)
    handler = body.regions[0].handler
    body.regions.clear()
    assert handler not in reachable(body)
    assert handler not in remove_dead_code(body).instructions


def test_reachable_from_the_middle():
    body = decode(sample.__code__)
    end = next(i for i in body.instructions if i.opname == "RETURN_VALUE")
    assert body.instructions[0] not in reachable(body, end)


def test_regions_shrink_with_what_they_cover():
    body = decode(sample.__code__)
    region = body.regions[0]
    where = positions_in(body)
    span = body.instructions[where[region.start] : where[region.end] + 1]
    left = keep(body, set(body.instructions) - {region.start, region.end})
    assert (left.regions[0].start, left.regions[0].end) == (span[1], span[-2])
    without = keep(body, set(body.instructions) - set(span))
    assert len(without.regions) == len(body.regions) - 1
    with pytest.raises(FlowError, match="handler is not"):
        keep(body, set(body.instructions) - {region.handler})


def test_stray_references_are_refused():
    body = decode(sample.__code__)
    first, second = body.instructions[1], body.instructions[2]
    stray = s.nop()[0]
    with pytest.raises(FlowError, match="not in the body"):
        covering(type(body)(body.instructions, body.code, [Region(first, stray, first, 0, False)]))
    with pytest.raises(FlowError, match="before its start"):
        covering(type(body)(body.instructions, body.code, [Region(second, first, first, 0, False)]))
    with pytest.raises(FlowError, match="twice"):
        positions_in(type(body)([first, first], body.code))
    with pytest.raises(FlowError, match="not in the body"):
        successors(type(body)(s.jump(stray), body.code))
