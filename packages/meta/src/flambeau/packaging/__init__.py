"""Packages: compiled functions in files; export, copies, pickling."""
