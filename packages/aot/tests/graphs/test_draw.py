"""Pictures of joint graphs."""

import itertools
import re
import xml.etree.ElementTree as ET

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.display import roles_of
from torch.nn import functional as F

SVG = "{http://www.w3.org/2000/svg}"


def joint_of(depth):
    def fn(x, w):
        for _ in range(depth):
            x = F.gelu(F.layer_norm(x @ w, (8,))) + x
        return x

    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    return aot.export_joint(fn, [x, w]).joint


def boxes_of(picture):
    found = {}
    for group in ET.fromstring(picture).iter(f"{SVG}g"):
        box = group.find(f"{SVG}rect")
        title = group.find(f"{SVG}title").text
        x, y = float(box.get("x")), float(box.get("y"))
        found[title.splitlines()[0]] = (x, y, float(box.get("width")), box.get("fill"), title)
    return found


@pytest.mark.parametrize("depth", [1, 14])
def test_every_node_has_its_place_and_colour(depth) -> None:
    joint = joint_of(depth)
    saved = aot.min_cut_partition(joint)
    boxes = boxes_of(aot.draw_joint(joint, saved))
    nodes = list(joint.graph.nodes)
    assert set(boxes) == {node.name for node in nodes}
    assert depth == 1 or len(nodes) >= 200
    roles = roles_of(joint, set(saved))
    assert set(roles.values()) == {"input", "forward", "saved", "recomputed", "backward"}
    from flambeau_aot.display import COLOURS

    for node in nodes:
        x, y, _, colour, _ = boxes[node.name]
        assert colour == COLOURS[roles[node]][0]
        for source in node.all_input_nodes:
            assert boxes[source.name][1] < y, "what is read stands above"
    rows = {}
    for x, y, width, _, _ in boxes.values():
        rows.setdefault(y, []).append((x, x + width))
    for row in rows.values():
        row.sort()
        assert all(left[1] < right[0] for left, right in itertools.pairwise(row)), "boxes overlap"


def test_lines_that_cross_the_cut_are_marked() -> None:
    joint = joint_of(2)
    saved = aot.min_cut_partition(joint)
    picture = aot.draw_joint(joint, saved)
    crossing = sum(
        source in saved
        for node, role in roles_of(joint, set(saved)).items()
        for source in node.all_input_nodes
        if role == "backward"
    )
    assert len(re.findall(r'stroke="#c8780a"', picture)) == crossing > 0


def test_tooltips_name_the_line_and_the_metadata() -> None:
    joint = joint_of(1)
    boxes = boxes_of(aot.draw_joint(joint))
    title = boxes["mm_default"][4]
    assert "matmul" in title
    assert "torch.float32 [4, 8], 128 B" in title
    assert "test_draw.py" in title


def test_text_and_unknown_forms() -> None:
    joint = joint_of(1)
    assert "def joint(" in aot.draw_joint(joint, form="text")
    with pytest.raises(ValueError, match="'svg' or 'text'"):
        aot.draw_joint(joint, form="png")
