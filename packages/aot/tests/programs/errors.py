"""Whether two programs that both raise raise the same.

What comes in: eager's error and the compiled program's, and the stages at which they came.
What goes out: "" where they are of one class and about one thing, or where the difference is
listed here with its reason; else the words for the difference.
Invariant: nothing is the same because it is an error; an unknown pair is a difference.
"""

from __future__ import annotations

import re

import flambeau_aot as aot

from .observe import Outcome

# What an error is about, by its words; the first that matches. Fake tensors have words of their
# own for what a kernel refuses, hence several for one subject.
SUBJECTS: tuple[tuple[str, str], ...] = (
    ("write to a leaf", r"leaf Variable that requires grad is being used in an in-place"),
    ("ambiguous view", r"A view was created in|Output \d+ of \w+ is a view"),
    ("written after it was saved", r"modified by an inplace operation"),
    ("gradient of another shape", r"returned an invalid gradient|Mismatch in shape: grad_output"),
    ("shapes of a product", r"shapes cannot be multiplied|must have same reduction dim"),
    ("shapes of a result", r"doesn't match the broadcast shape"),
    ("shapes of operands", r"must match the size of tensor b|[Bb]roadcast a dimension"),
    ("shapes of an index", r"shape mismatch: value tensor|Index tensor must have the same number"),
    ("shapes of an index", r"index .* to be no larger"),
    ("index out of bounds", r"out of bounds for dimension|Dimension out of range|out of bounds"),
    ("dimensions of t", r"t_?\(\) expects a tensor with <= 2 dimensions"),
    ("detach_ of a view", r"Can't detach views in-place"),
    ("memory that is read and written", r"unsupported operation: "),
    ("detached after it was saved", r"that has been detached in-place"),
    ("inference tensor", r"[Ii]nference tensors?"),
    ("out= of a tensor that requires grad", r"out=... arguments don't support automatic diff"),
)  # fmt: skip

# (what eager's error is about, what the compiled program's is about): why they may differ.
LISTED: dict[tuple[str, str], str] = {
    ("memory that is read and written", "shapes of a result"): (
        "eager looks at the memory before the shapes; a functional graph has no such memory"
    ),
    ("index out of bounds", "gradient of another shape"): (
        "whether an index is in bounds is known at the call, the shape of a gradient before it"
    ),
    ("index out of bounds", "shapes of an index"): (
        "of an index of too few dimensions, eager's scatter counts the sizes first"
    ),
    ("written after it was saved", "ambiguous view"): (
        "a value that was saved, and a view of it, are written to; autograd names the one that "
        "its backward pass meets first, and what is saved is the partition's choice"
    ),
    ("ambiguous view", "written after it was saved"): (
        "eager has kept a view that must not be written to (one of several by split), the compiled "
        "program the whole that it is a view of, and the caller has written to that"
    ),
    ("shapes of an index", "gradient of another shape"): (
        "a fake index_put takes values of any shape; the derivative's rule then notices"
    ),
}


# What eager alone may say in the backward pass, and why.
EAGER_ALONE: dict[str, str] = {
    "ambiguous view": (
        "a view made with grad disabled, of memory that the program writes to afterwards: the "
        "compiled program makes the view after the write, and nothing is ambiguous"
    ),
    "gradient of another shape": (
        "a caller writes to a result that is a view and was given another shape in place: eager "
        "takes the view again in its shape of before; the compiled program returns no such view"
    ),
    "detached after it was saved": (
        "eager has kept a value that is detached in place; the compiled program kept another, or "
        "computes it again, and no value is another for being detached"
    ),
}


def subject(error: BaseException) -> str:
    """What an error is about: a name of `SUBJECTS`, else its first line without numbers."""
    text = str(error)
    for name, pattern in SUBJECTS:
        if re.search(pattern, text):
            return name
    line = text.split("\n")[0]
    line = re.sub(r"^program: \w+: ", "", line)
    return re.sub(r"\d+|0x[0-9a-f]+", "#", line)


def same_class(expected: BaseException, given: BaseException) -> bool:
    """Whether one is of the other's class, or was raised for one of that class."""
    of: BaseException | None = given
    while of is not None:
        if type(of) is type(expected):
            return True
        of = of.__cause__
    # What this package says by itself in eager's words is a RuntimeError by inheritance.
    return type(expected) is RuntimeError and isinstance(given, aot.TraceError)


def error_difference(expected: Outcome, given: Outcome) -> str:
    """How two errors differ, "" where they do not."""
    one, other = expected.error, given.error
    assert one is not None and other is not None
    about, also = subject(one), subject(other)
    if (about, also) in LISTED:
        return ""
    stages = (expected.stage, given.stage)
    ahead = stages == ("gradients", "call") and isinstance(other, aot.TraceError)
    if about == also and same_class(one, other) and (stages[0] == stages[1] or ahead):
        return ""
    return f"eager in {stages[0]}: {type(one).__name__}: {one}; compiled in {stages[1]}: " + (
        f"{type(other).__name__}: {other}"
    )
