"""Values: variable trackers, the stand-ins of symbolic execution."""
