"""Numbers that depend on data or on open sizes: ranges, choices, text of them."""
