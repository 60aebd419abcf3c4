"""Flambeau beside eager and the incumbent, measured in the same run."""
