"""Shared memory pools between recordings of a stream.

In: what a recording made for another one alone: what a forward graph saves for its backward. Out:
the same memory, in which the second recording puts its own values once it has read it. Invariant:
memory is lent once, to a recording after which nobody reads it; results that callers see are never
lent; the lender replays only when nobody refers to what the borrower made.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_inductor._torch_compat import storage_handle

Held = Callable[[], bool]


def address_of(tensor: torch.Tensor) -> int:
    """Where the memory that a tensor looks into begins."""
    return tensor.untyped_storage().data_ptr()


def first_byte(tensor: torch.Tensor) -> int:
    """The address of a tensor's first element, of one without elements too."""
    return address_of(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def spanned(tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """The address and the number of the bytes from the first to the last of the tensors' memory."""
    storages = [each.untyped_storage() for each in tensors]
    first = min(each.data_ptr() for each in storages)
    return first, max(each.data_ptr() + each.nbytes() for each in storages) - first


@dataclass(slots=True, eq=False)
class Loan:
    """Memory of one recording. `owners` keep it from being given away, by address, until it is
    taken; `held` then says whether somebody still refers to a result of the borrower. All of it is
    seen through one storage, known by `handle`: its references are counted at once."""

    stream: int
    pool: Any
    owners: dict[int, torch.Tensor]
    handle: int
    starts: tuple[int, ...]
    taken: bool = False
    held: Held | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def bytes(self, addresses: Iterable[int]) -> int:
        """Of the memory at these addresses, what can still be taken."""
        owners = [self.owners[at] for at in set(addresses) if at in self.owners]
        return 0 if self.taken else sum(each.untyped_storage().nbytes() for each in owners)

    def take(self, addresses: Iterable[int]) -> dict[int, torch.Tensor]:
        """The owners of what is at these addresses, which from here on only the caller holds."""
        with self.lock:
            if self.taken:
                return {}
            self.taken = True
            return {at: self.owners.pop(at) for at in set(addresses) if at in self.owners}

    def in_use(self) -> bool:
        """Whether a result of the borrower lies where the lender's next replay would write."""
        return self.held is not None and self.held()

    def owner_of(self, address: int) -> int:
        """Where the memory that has a byte of it at an address begins."""
        return self.starts[bisect_right(self.starts, address) - 1]


class Register:
    """Memory of what living recordings hand out: by address, one entry a recording; and of what
    they lend, by the storage that it is seen through."""

    def __init__(self) -> None:
        self._found: dict[int, list[Loan | None]] = {}
        self._seen: dict[int, Loan] = {}
        self._lock = threading.Lock()

    def add(self, addresses: Iterable[int], loan: Loan | None) -> None:
        with self._lock:
            for at in addresses:
                self._found.setdefault(at, []).append(loan)
            if loan is not None:
                self._seen[loan.handle] = loan

    def discard(self, addresses: Iterable[int], loan: Loan | None) -> None:
        with self._lock:
            for at in addresses:
                entries = self._found[at]
                entries.remove(loan)
                if not entries:
                    del self._found[at]
            if loan is not None:
                del self._seen[loan.handle]

    def home(self, tensor: torch.Tensor) -> int:
        """Where the memory begins that a tensor looks into: of what is seen through a storage with
        others, where its own does."""
        lent = self._seen.get(storage_handle(tensor))
        return address_of(tensor) if lent is None else lent.owner_of(first_byte(tensor))

    def loan(self, address: int) -> Loan | None:
        """What can be taken of the memory at an address, by whom it was lent."""
        with self._lock:
            lent = (each for each in self._found.get(address, ()) if each is not None)
            return next((each for each in lent if address in each.owners), None)

    def __contains__(self, address: object) -> bool:
        return address in self._found


RECORDED = Register()


def is_recorded(tensor: torch.Tensor) -> bool:
    return RECORDED.home(tensor) in RECORDED


def best_loan(
    values: Sequence[Any], reusable: Iterable[int], stream: int
) -> tuple[Loan, frozenset[int]] | None:
    """The loan by which most can be had of inputs that nobody reads afterwards, and where."""
    wanted = frozenset(reusable)
    found: dict[int, Loan] = {}
    kept: set[int] = set()
    for position, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            continue
        at = RECORDED.home(value)
        loan = RECORDED.loan(at)
        if position not in wanted:
            kept.add(at)
        elif loan is not None and loan.stream == stream:
            found[at] = loan
    addresses = frozenset(found) - kept
    loans = {id(found[at]): found[at] for at in addresses}
    best = max(loans.values(), key=lambda each: each.bytes(addresses), default=None)
    if best is None or not best.bytes(addresses):
        return None
    return best, addresses & best.owners.keys()


def lendable(
    outputs: Sequence[Any], inside: Iterable[int], kept: Iterable[int]
) -> dict[int, list[int]]:
    """Positions of outputs by address, of memory that only another recording will read. inside:
    outputs that no caller sees. kept: those that are copied at each replay."""
    lent, stays = frozenset(inside) - frozenset(kept), set[int]()
    found: dict[int, list[int]] = {}
    for position, output in enumerate(outputs):
        if not isinstance(output, torch.Tensor) or not output.untyped_storage().nbytes():
            continue
        found.setdefault(address_of(output), []).append(position)
        if position not in lent:
            stays.add(address_of(output))
    return {at: positions for at, positions in found.items() if at not in stays}


def seen_through(
    memory: torch.Tensor, value: torch.Tensor, offset: int | None = None
) -> torch.Tensor:
    """A tensor laid out as `value` in the storage of `memory`, at the same address or from the
    element `offset` on."""
    made = torch.empty(0, dtype=value.dtype, device=memory.device)
    bytes_before = first_byte(value) - address_of(memory)
    first = bytes_before // value.element_size() if offset is None else offset
    return made.set_(memory.untyped_storage(), first, value.size(), value.stride())  # type: ignore[call-overload]
