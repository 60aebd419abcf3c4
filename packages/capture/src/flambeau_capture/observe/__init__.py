"""Observation of capture: records, logs, explanations, profiles, recorded frames."""
