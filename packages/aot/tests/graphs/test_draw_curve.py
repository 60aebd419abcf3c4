"""The picture of memory for work: its points are where the data say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.display import in_units
from flambeau_aot.partition.budget import CurvePoint
from torch.nn import functional as F

SVG = "{http://www.w3.org/2000/svg}"


def circles(picture: str) -> list[tuple[float, float, str]]:
    """The points of a picture with their tooltips."""
    found = []
    for circle in ET.fromstring(picture).iter(f"{SVG}circle"):
        title = circle.find(f"{SVG}title")
        assert title is not None and title.text is not None
        found.append((float(circle.attrib["cx"]), float(circle.attrib["cy"]), title.text))
    return found


def test_points_stand_in_proportion_to_their_numbers() -> None:
    points = [
        CurvePoint(0, 0.5, ()),
        CurvePoint(512, 0.25, ("a",)),
        CurvePoint(2048, 0.0, ("a", "b")),
    ]
    drawn = circles(aot.draw_curve(points))
    xs, ys = [x for x, _, _ in drawn], [y for _, y, _ in drawn]
    assert (xs[1] - xs[0]) / (xs[2] - xs[0]) == pytest.approx(512 / 2048, abs=1e-3)
    assert (ys[2] - ys[1]) / (ys[2] - ys[0]) == pytest.approx(0.25 / 0.5, abs=1e-3)
    assert xs[0] < xs[1] < xs[2], "more memory stands to the right"
    assert ys[0] < ys[1] < ys[2], "more work stands above"
    assert [title for _, _, title in drawn] == [
        "0 B saved, 50.0% of the work twice",
        "512 B saved, 25.0% of the work twice",
        "2.0 KiB saved, 0.0% of the work twice",
    ]


def test_one_line_goes_through_all_points_and_the_axes_say_their_ends() -> None:
    points = [CurvePoint(1024, 0.3, ()), CurvePoint(4096, 0.1, ())]
    picture = aot.draw_curve(points, title="of a test")
    root = ET.fromstring(picture)
    (line,) = root.iter(f"{SVG}polyline")
    corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
    assert corners == [(x, y) for x, y, _ in circles(picture)]
    texts = [item.text for item in root.iter(f"{SVG}text")]
    assert texts == [
        "of a test",
        "saved for backward, up to 4.0 KiB",
        "work done twice, up to 30.0%",
    ]


@pytest.mark.parametrize("points", [[], [CurvePoint(0, 0.0, ())]], ids=["none", "one"])
def test_a_curve_without_a_line(points: list[CurvePoint]) -> None:
    picture = aot.draw_curve(points)
    assert len(circles(picture)) == len(points)
    assert not list(ET.fromstring(picture).iter(f"{SVG}polyline"))


def test_the_curve_of_a_graph_is_drawn_within_the_picture() -> None:
    def fn(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = F.gelu(F.layer_norm(x, (8,)) @ w) + x
        return x

    values = [torch.randn(16, 8, requires_grad=True)]
    values += [torch.randn(8, 8, requires_grad=True) for _ in range(4)]
    points = aot.memory_curve(aot.export_joint(fn, values).joint)
    picture = aot.draw_curve(points)
    left, top, width, height = map(float, ET.fromstring(picture).attrib["viewBox"].split())
    drawn = circles(picture)
    assert len(drawn) == len(points) > 2
    assert all(left < x < width and top < y < height for x, y, _ in drawn)
    for (_, _, title), point in zip(drawn, points, strict=True):
        assert title.startswith(in_units(point.saved_bytes))


def test_bytes_as_people_read_them() -> None:
    sizes = [0, 1023, 1024, 1536, 3 << 20, 5 << 30, 5 << 40]
    assert [in_units(size) for size in sizes] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 GiB",
        "5120.0 GiB",
    ]
