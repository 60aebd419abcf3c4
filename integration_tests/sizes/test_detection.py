"""What detectors do after their heads, with a suppression operator of torchvision's: one graph of
any number of boxes that are left, none among them."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import flambeau
from integration_tests.programs_by_data.detection import boxes_of, overlaps

SCHEMA = "kept_boxes(Tensor boxes, Tensor scores, float most) -> Tensor"


def suppressed(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    order, kept = scores.argsort(descending=True), []
    while order.numel():
        kept.append(order[0])
        alike = overlaps(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][alike <= most]
    return torch.stack(kept) if kept else order


def described(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


@pytest.fixture(autouse=True)
def operator() -> Iterator[None]:
    """One like torchvision's, and among them, whether it is installed or not."""
    with torch.library._scoped_library("torchvision", "FRAGMENT") as library:
        library.define(SCHEMA)
        library.impl("kept_boxes", suppressed, "CPU")
        torch.library.register_fake("torchvision::kept_boxes", described, lib=library)
        yield


def of_each_class(boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """Boxes of different classes are moved apart."""
    if boxes.numel() == 0:
        return labels
    apart = labels.to(boxes) * (boxes.max() + 1)
    return torch.ops.torchvision.kept_boxes(boxes + apart[:, None], scores, 0.5)


def detections(logits: Tensor, boxes: Tensor, least: Tensor) -> list[tuple[Tensor, ...]]:
    found = []
    for scores, own in zip(logits.softmax(-1).split((6, 8)), boxes.split((6, 8)), strict=True):
        likely, corners = scores[:, 1:].flatten(), own.clamp(0, 1.2).repeat_interleave(3, 0)
        labels = torch.arange(1, 4).repeat(len(own))
        (places,) = torch.where(likely > least)
        likely, corners, labels = likely[places], corners[places], labels[places]
        sides = corners[:, 2:] - corners[:, :2]
        (places,) = torch.where((sides > 0.01).all(1))
        likely, corners, labels = likely[places], corners[places], labels[places]
        kept = of_each_class(corners, likely, labels)[:5]
        found.append((corners[kept], likely[kept], labels[kept]))
    return found


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_detections_of_any_number_are_one_graph(backend: str) -> None:
    compiled = flambeau.compile(detections, backend=backend)
    counts = set()
    for seed, least in enumerate((0.2, 0.3, 0.6, 0.75, 0.99, 0.0)):
        torch.manual_seed(seed)
        given = torch.randn(14, 4), boxes_of(14), torch.tensor(least)
        wanted = detections(*given)
        torch.testing.assert_close(compiled(*given), wanted)
        counts |= {len(part[0]) for part in wanted}
    assert {0, 5} <= counts
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())
