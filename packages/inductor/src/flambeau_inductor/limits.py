"""The numbers that scheduling decisions turn on.

In: nothing, or a device. Out: `Limits`. Invariant: plain data; the same limits give
the same program.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from flambeau_inductor.tuning import MEASURED, Tuning


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of inlining and fusion."""

    inline_ops: int = 24
    """A value with several readers is computed again in each if it costs at most so many ops."""

    inline_loads: int = 2
    """... and reads at most so many full-size tensors."""

    chain_ops: int = 160
    """A value is given memory when computing it in place would take more ops than this."""

    amplification: int = 4
    """An expensive op is not repeated this many times for a reader that broadcasts it."""

    loop_ops: int = 400
    """Largest body of one loop."""

    loop_buffers: int = 48
    """Most buffers that one loop touches."""

    row_bytes: int = 1 << 20
    """Largest row (bytes of all its elements, per tensor) that is read again after a reduction."""

    single_row_bytes: int = 1 << 16
    """The same where there are too few rows to share out over threads."""

    few_rows: int = 8

    shared_fraction: int = 8
    """Unrelated loops are joined if what they share is at least 1/so much of what either moves."""

    tiny_points: int = 4096
    """Loops over at most so many points are joined even if they share nothing: a launch costs
    more than they do."""

    recompute_on: tuple[str, ...] = ("cuda",)
    """Types of devices on which loops compute what another loop computes too, rather than read it,
    where that moves less memory."""

    split_on: tuple[str, ...] = ("cuda",)
    """Types of devices on which long rows are split (a CPU's threads share them out themselves)."""

    split_programs: int = MEASURED.split_programs
    """Programs that a GPU wants of a reduction; with fewer, its rows are split."""

    split_length: int = MEASURED.split_length
    """Half of the least number of elements of a row that is split."""

    split_part: int = MEASURED.split_part
    """Least number of elements of a part of a row; columns are split from four such parts on."""

    split_columns: int = MEASURED.split_columns
    """Columns that one program sums together where neighbours in memory are of different rows."""

    across_bytes: int = MEASURED.across_bytes
    """A loop over rows takes sums down their columns with it, on a GPU, if both read at least so
    much of the same memory: less is still in the cache when it is read again."""

    across_columns: int = MEASURED.across_columns
    """Columns of a program that goes down a part of the rows, a few at a time, where a row is too
    long for one."""

    least_across: int = MEASURED.least_across
    most_across: int = MEASURED.most_across
    """Columns of such a loop: a program holds a row, and a sum for each column, in registers; of
    twice as many where little else lives there. Of more, it holds a part of a row; what is reduced
    along rows is then a loop of its own, where that reads them twice anyway."""

    most_held: int = MEASURED.most_held
    """Columns of a row that a program holds in registers if it sums none of them."""

    row_columns: tuple[int, ...] = MEASURED.row_columns
    """Columns, rounded up, of which `split_programs` programs, or more, run at once."""

    light_registers: tuple[int, int] = MEASURED.light_registers
    """Live registers an element of a row with which three programs for two run at once, and with
    which a program holds a row of twice `most_across`."""

    uneven_shares: int = MEASURED.uneven_shares
    """Up to one program in so many is given up for equal shares of the rows."""

    pipelined_bytes: int = MEASURED.pipelined_bytes
    pipelined_spare: int = MEASURED.pipelined_spare
    """Column sums are software-pipelined for elements of at most so many bytes, where at most one
    column in so many is past the end of the last program."""

    row_scalar_readers: int = MEASURED.row_scalar_readers
    row_scalar_ops: int = MEASURED.row_scalar_ops
    """Row kernels compute scalars of their rows again if at most so many of them read a loop's, and
    it has at most so many operations."""

    recompute_ops: int = MEASURED.recompute_ops
    """Operations that a reader may compute once more rather than read their result."""

    fusion: bool = True

    share_memory: bool = True
    """Later buffers take over the memory of finished ones where that does not raise the peak."""

    def on(self, tuning: Tuning) -> Limits:
        """These limits on a device: what is as it was measured elsewhere is as it is there."""
        if tuning is MEASURED:
            return self
        names = {field.name for field in fields(self)} & {field.name for field in fields(tuning)}
        left = [name for name in names if getattr(self, name) == getattr(MEASURED, name)]
        return replace(self, **{name: getattr(tuning, name) for name in left})
