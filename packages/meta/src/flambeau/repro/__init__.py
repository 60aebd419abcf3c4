"""Reproduction: a failing graph as a stand-alone script of a few nodes."""

from flambeau.repro.calls import run_calls, write_calls
from flambeau.repro.check import GraphCheck, GraphFailure
from flambeau.repro.hook import Settings
from flambeau.repro.script import Script, drawn, read_script, run_script, write_script
from flambeau.repro.shrink import first_bad_node, shrink
from flambeau.repro.stale import RecordedCall

__all__ = [
    "RecordedCall", "GraphFailure", "GraphCheck", "Script", "Settings", "drawn", "first_bad_node",
    "read_script", "run_calls", "run_script", "shrink", "write_calls", "write_script",
]  # fmt: skip
