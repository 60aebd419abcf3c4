"""A run as structured events on disk: `FLAMBEAU_TRACE=dir`, or `with flambeau.trace(dir)`."""

from flambeau.tracing.trace import Trace, from_environment, trace

__all__ = ["Trace", "from_environment", "trace"]
