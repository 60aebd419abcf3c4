"""Exceptions and warnings of capture, graph breaks aside.

In: nothing. Out: exception and warning classes. Invariant: none of them reaches a program that did
not ask for errors, except as a warning.
"""


class CaptureError(RuntimeError):
    """Base of the errors that this package raises to a program."""


class BackendError(CaptureError):
    """A backend raised, or gave back something that cannot be called."""


class ExportError(CaptureError):
    """A function cannot be had as one graph that stands alone; the text says what stands in it."""

    is_a_finding = True


class RecompileError(CaptureError):
    """A function would have to be compiled again where that was forbidden; the text says why."""


class ConstraintViolation(CaptureError):
    """A size that is to stay open, by `mark_dynamic` or by `sizes=`, is made a constant by a line
    of the program, which the text names."""


class SizePolicyError(CaptureError, ValueError):
    """`sizes=` says what cannot be; the text names the place."""


class ReplayError(CaptureError):
    """A recorded frame cannot be replayed; the text says what is missing."""


class CaptureFault(CaptureError):
    """Capture itself failed where no fallback is allowed; the text names the user's line."""


class CaptureWarning(UserWarning):
    """Something runs eagerly that was to be compiled."""


class UnknownBackend(CaptureError, ValueError):
    """No backend of that name; the text lists those there are."""
