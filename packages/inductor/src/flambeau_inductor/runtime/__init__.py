"""What compiled artifacts need at run time: nothing of the compiler, nor sympy, nor triton."""
