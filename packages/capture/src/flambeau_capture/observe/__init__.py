"""What capture did: records, logs, explanations, profiles, recorded frames."""
