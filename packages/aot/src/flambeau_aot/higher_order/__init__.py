"""Higher-order operators and derivatives of compiled programs."""
