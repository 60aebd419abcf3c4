"""Saved-tensor hooks in force, those of checkpoints among them.

In: the hooks of the thread. Out: what they are, or others in their place. Invariant: what a context
takes away it puts back in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


@contextmanager
def no_saved_tensor_hooks() -> Iterator[None]:
    """The caller's hooks on saved tensors do not see what autograd saves inside this block."""
    hooks: list[tuple[Any, Any]] = []
    while (top := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        hooks.append(top)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


class SavesNoted:
    """What autograd saves inside a block, counted, with hooks that change nothing."""

    guarded = True

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> SavesNoted:
        torch._C._autograd._push_saved_tensors_default_hooks(self, _unchanged)
        return self

    def __exit__(self, *error: object) -> None:
        torch._C._autograd._pop_saved_tensors_default_hooks()

    def __call__(self, saved: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return saved

    @staticmethod
    def are_forbidden_by(error: BaseException | None) -> bool:
        """Whether an exception comes of a transform of `torch.func` that no hooks may be around."""
        seen = set[int]()  # causes may lead in a circle
        while error is not None and id(error) not in seen:
            if "support saved tensor hooks" in str(error):
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return False


def _unchanged(saved: torch.Tensor) -> torch.Tensor:
    return saved


def checkpoint_hooks_on_top() -> bool:
    """Whether the hooks on saved tensors in force are those of `torch.utils.checkpoint`."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is None:
        return False
    pack = top[0]
    if isinstance(pack, SavesNoted):
        return False
    return pack.__module__ == "torch.utils.checkpoint" and "_checkpoint_hook" in pack.__qualname__


def hooks_may_change_values() -> bool:
    """Whether there are hooks on saved tensors in force, other than those of torch's own that give
    back what they were given."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is None:
        return False
    name = f"{getattr(top[0], '__module__', '')}.{getattr(top[0], '__qualname__', '')}"
    return not name.startswith(("torch.autograd.graph.save_on_cpu.", "torch.utils.checkpoint."))


def top_hooks_are(pack: Any) -> bool:
    """Whether the hooks on saved tensors in force begin with this function."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return top is not None and top[0] is pack


def swap_top_hooks(pack: Any, unpack: Any) -> None:
    """Put these hooks on saved tensors in place of those in force."""
    torch._C._autograd._pop_saved_tensors_default_hooks()
    torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)


def guard_top_hooks(guarded: Callable[[Any], Any]) -> None:
    """Put `guarded(hook)` in place of the hooks on saved tensors in force, where they are not."""
    top = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if top is not None and not hasattr(top[0], "guarded"):
        swap_top_hooks(guarded(top[0]), guarded(top[1]))


def watch_checkpoint_policy(note: Any) -> None:
    """Let `note(policy)` be called, for every operator, with what the policy of the checkpoint
    around it says: the name of a `CheckpointPolicy`, in lower case."""
    for mode in _get_current_dispatch_mode_stack():
        asked = getattr(mode, "policy_fn", None)
        if asked is None or type(mode).__name__ != "_CachingTorchDispatchMode":
            continue

        def policy(*args: Any, _asked: Any = asked, **kwargs: Any) -> Any:
            given = _asked(*args, **kwargs)
            if isinstance(given, bool):
                note("must_save" if given else "prefer_recompute")
            else:
                note(given.name.lower())
            return given

        mode.policy_fn = policy  # type: ignore[attr-defined]
