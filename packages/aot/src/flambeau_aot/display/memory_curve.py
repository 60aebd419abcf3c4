"""Picture of the memory and recomputation curve.

What comes in: points of the curve. What goes out: an SVG.
Invariant: the text of a point says its numbers; the picture needs no script and no font.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_aot.partition.budget import CurvePoint

_WIDTH, _HEIGHT, _MARGIN = 640, 360, 64


def draw_curve(points: Sequence[CurvePoint], title: str = "memory for work") -> str:
    """Bytes saved from left to right, the part of work done twice from bottom to top."""
    most_bytes = max((point.saved_bytes for point in points), default=1) or 1
    most_share = max((point.share for point in points), default=1.0) or 1.0

    def place(point: CurvePoint) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * point.saved_bytes / most_bytes
        y = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * point.share / most_share
        return round(x, 1), round(y, 1)

    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_MARGIN}" y="28" font-size="15">{title}</text>',
        f'<path d="M{_MARGIN} {_MARGIN}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{right}" y="{bottom + 32}" text-anchor="end">saved for backward, up to '
        f"{in_units(most_bytes)}</text>",
        f'<text x="{_MARGIN}" y="{_MARGIN - 12}">work done twice, up to {most_share:.1%}</text>',
    ]
    if len(points) > 1:
        path = " ".join(f"{x},{y}" for x, y in map(place, points))
        lines.append(f'<polyline points="{path}" fill="none" stroke="#1f6fb4" stroke-width="2"/>')
    for point in points:
        x, y = place(point)
        lines.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="#1f6fb4">'
            f"<title>{in_units(point.saved_bytes)} saved, {point.share:.1%} of the work twice"
            "</title></circle>"
        )
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def in_units(size: int) -> str:
    """Bytes as people read them."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
