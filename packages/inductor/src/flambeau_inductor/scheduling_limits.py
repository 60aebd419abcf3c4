"""Scheduling limits: the numbers that decisions of fusion and order turn on.

In: nothing, or a device. Out: `Limits`. Invariant: plain data; the same limits give
the same program.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from flambeau_inductor.tuning import MEASURED, Tuning


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of inlining, fusion and sharing of memory.

    Of values: inline_ops, inline_loads: one with several readers is computed again in each if it
    costs at most so many ops and reads at most so many full-size tensors. chain_ops: it is given
    memory when computing it in place would take more ops. amplification: an expensive op is not
    repeated so many times for a reader that broadcasts it. recompute_on, recompute_ops: types of
    devices on which loops compute what another loop computes too where that moves less memory, and
    the most operations of such a value. looked_up_readers: from so many readers on, what is read
    through a position that is looked up has memory there, if it is at most row_bytes large.
    vector_ops, vector_rows: on those devices, what takes at least so many ops has memory where at
    least so many rows of a matrix are multiplied by it, each in a program that would compute it.

    Of loops: loop_ops, loop_buffers: the largest body, the most buffers. row_bytes: the largest row
    of a tensor that is read again after a reduction; single_row_bytes: the same of fewer than
    few_rows rows, too few to share out over threads. shared_fraction: unrelated loops are joined if
    they share at least 1/so much of what either moves. tiny_points: loops over at most so many
    points are joined even if they share nothing, since a launch costs more. fusion, share_memory:
    whether loops are joined, and whether later buffers take over the memory of finished ones.

    Of reductions, on the types of devices in split_on: split_programs: programs that a GPU wants of
    one; with fewer, rows of twice split_length elements are split, into parts of split_part at
    least (columns from four such parts on); split_columns: columns that one program sums together.
    across_bytes: a loop over rows takes sums down their columns with it if both read so much of the
    same memory: less is still in the cache. across_columns: of a program that goes down a part of
    the rows where a row is too long for one. least_across, most_across: columns of such a loop,
    whose program holds a row and a sum for each column in registers (twice as many where little
    else lives there); of more it holds a part of a row, and what is reduced along rows is a loop of
    its own. `most_held`: columns of a row that a program holds if it sums none of them.
    row_columns: of those, rounded up, split_programs programs or more run at once. light_registers:
    live registers an element of a row with which three programs for two run at once, and with which
    one holds a row of twice most_across. uneven_shares: up to one program in so many is given up
    for equal shares of the rows. pipelined_bytes, pipelined_spare: column sums are
    software-pipelined for elements of at most so many bytes, where at most one column in so many is
    past the end. row_scalar_readers, row_scalar_ops: row kernels compute scalars of their rows
    again if at most so many loops read them, and they take at most so many operations.
    """

    inline_ops: int = 24
    inline_loads: int = 2
    chain_ops: int = 160
    vector_ops: int = 6
    vector_rows: int = 256
    amplification: int = 4
    loop_ops: int = 400
    loop_buffers: int = 48
    row_bytes: int = 1 << 20
    single_row_bytes: int = 1 << 16
    few_rows: int = 8
    shared_fraction: int = 8
    tiny_points: int = 4096
    recompute_on: tuple[str, ...] = ("cuda",)
    split_on: tuple[str, ...] = ("cuda",)
    split_programs: int = MEASURED.split_programs
    split_length: int = MEASURED.split_length
    split_part: int = MEASURED.split_part
    split_columns: int = MEASURED.split_columns
    across_bytes: int = MEASURED.across_bytes
    across_columns: int = MEASURED.across_columns
    least_across: int = MEASURED.least_across
    most_across: int = MEASURED.most_across
    most_held: int = MEASURED.most_held
    row_columns: tuple[int, ...] = MEASURED.row_columns
    light_registers: tuple[int, int] = MEASURED.light_registers
    uneven_shares: int = MEASURED.uneven_shares
    pipelined_bytes: int = MEASURED.pipelined_bytes
    pipelined_spare: int = MEASURED.pipelined_spare
    row_scalar_readers: int = MEASURED.row_scalar_readers
    row_scalar_ops: int = MEASURED.row_scalar_ops
    recompute_ops: int = MEASURED.recompute_ops
    looked_up_readers: int = MEASURED.looked_up_readers
    fusion: bool = True
    share_memory: bool = True

    def on(self, tuning: Tuning) -> Limits:
        """These limits on a device: what is as it was measured elsewhere is as it is there."""
        if tuning is MEASURED:
            return self
        names = {field.name for field in fields(self)} & {field.name for field in fields(tuning)}
        left = [name for name in names if getattr(self, name) == getattr(MEASURED, name)]
        return replace(self, **{name: getattr(tuning, name) for name in left})
