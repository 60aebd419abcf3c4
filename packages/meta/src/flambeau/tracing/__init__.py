"""Traces: a run as structured events on disk."""

from flambeau.tracing.trace import Trace, from_environment, trace

__all__ = ["Trace", "from_environment", "trace"]
