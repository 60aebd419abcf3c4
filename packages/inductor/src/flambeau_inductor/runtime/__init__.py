"""Runtime of compiled artifacts: no compiler, sympy or triton."""
