"""Programs whose sizes depend on data, by subject, each with what it is given for a count."""
