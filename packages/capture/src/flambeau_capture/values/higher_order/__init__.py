"""Higher-order operators: transforms, branches, loops, autograd functions, contexts."""
