"""Report of one compile, in numbers.

What comes in: counts and times gathered by the passes. What goes out: frozen data and its text.
Invariant: bytes are those of the values' elements as traced; inputs that are merely kept
referenced count as 0, in both totals.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """Counts and times of one compile.

    seconds: by pass name. recomputed: operators that run in forward and backward.
    saved_bytes: kept from forward to backward; saved_bytes_save_all: what saving everything the
    backward part reads would keep. held_inputs: inputs that only a derivative of second order
    reads, kept referenced for it (their bytes are the caller's). removed: operators
    removed, by rule. recomputed_share: their estimated part of all work.
    forward_peak_bytes, backward_peak_bytes: the most that lives at once beyond the inputs while
    a graph runs operator by operator; in the backward graph with what is saved.
    fake_runs, fake_remembered: operators whose metadata was computed, or known from before.
    """

    name: str
    kind: str
    joint_nodes: int
    forward_nodes: int
    backward_nodes: int = 0
    saved_tensors: int = 0
    saved_bytes: int = 0
    saved_bytes_save_all: int = 0
    held_inputs: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    recomputed_share: float = 0.0
    forward_peak_bytes: int = 0
    backward_peak_bytes: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    fake_runs: int = 0
    fake_remembered: int = 0

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.kind}, {self.joint_nodes} operators"]
        if self.kind == "training":
            lines.append(
                f"  forward {self.forward_nodes}, backward {self.backward_nodes} operators, "
                f"{len(self.recomputed)} run in both"
            )
            lines.append(
                f"  saved {self.saved_tensors} tensors, {self.saved_bytes} bytes "
                f"(saving everything: {self.saved_bytes_save_all})"
            )
        lines.extend(f"  {name}: {seconds * 1e3:.1f} ms" for name, seconds in self.seconds.items())
        return "\n".join(lines)
