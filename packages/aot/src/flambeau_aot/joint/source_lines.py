"""Source lines of the user's program, for graph nodes.

In: the node of the captured graph being run, or the Python stack when a plain function is traced;
sequence numbers of autograd nodes. Out: metadata for new nodes.
Invariant: a backward operator gets the lines of the forward operator whose autograd node runs.
"""

from __future__ import annotations

import bisect
import linecache
import os
import sys
from typing import Any

import torch

_TORCH_DIR = os.path.dirname(torch.__file__)
_OWN_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CARRIED = ("stack_trace", "nn_module_stack", "nn_module", "recompute", "gathered")
_FORWARD = frozenset({"recompute", "gathered"})
"""What is said of a forward operator alone."""


class Lines:
    """The user's lines by forward position and, afterwards, by autograd sequence number."""

    def __init__(self) -> None:
        self.current: dict[str, Any] = {}
        self._starts: list[int] = []
        self._metas: list[dict[str, Any]] = []

    def enter(self, meta: dict[str, Any], sequence: int) -> None:
        """The node with this metadata runs next; autograd numbers from `sequence` on are its."""
        self.current = {name: meta[name] for name in CARRIED if meta.get(name)}
        self._mark(sequence)

    def leave(self) -> None:
        """No node of the user's runs: lines of a plain Python function come from the stack."""
        self.current = {}

    def _mark(self, sequence: int) -> None:
        meta = self.current
        if not _FORWARD.isdisjoint(meta):
            meta = {name: each for name, each in meta.items() if name not in _FORWARD}
        if self._starts and self._starts[-1] == sequence:
            self._metas[-1] = meta
        else:
            self._starts.append(sequence)
            self._metas.append(meta)

    def from_stack(self, sequence: int) -> dict[str, Any]:
        """Metadata from the innermost Python frame outside torch and this package."""
        frame = sys._getframe(1)
        while frame is not None:
            path = frame.f_code.co_filename
            if not path.startswith((_TORCH_DIR, _OWN_DIR, "<")):
                break
            if frame.f_back is None:
                return {}
            frame = frame.f_back
        text = _text(path, frame.f_lineno, frame.f_code.co_name)
        self.current = {"stack_trace": text}
        self._mark(max(sequence - 1, 0))
        return self.current

    def of_error(self, error: BaseException) -> str:
        """The user's innermost line that an error came from; where there is none, the line of the
        last operator."""
        found = ""
        step = error.__traceback__
        while step is not None:
            code = step.tb_frame.f_code
            if not code.co_filename.startswith((_TORCH_DIR, _OWN_DIR, "<")):
                found = _text(code.co_filename, step.tb_lineno, code.co_name)
            step = step.tb_next
        return found or str(self.current.get("stack_trace", ""))

    def of_backward(self, sequence: int) -> dict[str, Any]:
        """Metadata of the forward operator whose autograd node has this number."""
        index = bisect.bisect_right(self._starts, sequence) - 1
        return self._metas[index] if index >= 0 else {}


def _text(path: str, line: int, name: str) -> str:
    return f'  File "{path}", line {line}, in {name}\n    {linecache.getline(path, line).strip()}'
