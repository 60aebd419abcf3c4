"""Exceptions and warnings of capture, graph breaks aside.

In: nothing. Out: exception and warning classes. Invariant: none of them reaches a program that did
not ask for errors, except as a warning.
"""


class BackendError(RuntimeError):
    """A backend raised, or gave back something that cannot be called."""


class ExportError(RuntimeError):
    """A function cannot be had as one graph that stands alone; the text says what stands in it."""

    is_a_finding = True


class RecompileError(RuntimeError):
    """A function would have to be compiled again where that was forbidden; the text says why."""


class ReplayError(RuntimeError):
    """A recorded frame cannot be replayed; the text says what is missing."""


class CaptureFault(RuntimeError):
    """Capture itself failed where no fallback is allowed; the text names the user's line."""


class CaptureWarning(UserWarning):
    """Something runs eagerly that was to be compiled."""


class UnknownBackend(ValueError):
    """No backend of that name; the text lists those there are."""
