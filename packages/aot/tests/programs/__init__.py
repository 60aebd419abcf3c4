"""Random programs, run in eager and compiled, compared in everything a caller can see.

What comes in: draws of hypothesis, or a seed. What goes out: a program as Python source, its
inputs, and the difference between the two runs, if any.
Invariant: a program is plain text that runs alone; what is printed for a failure reproduces it.

`python -m programs --count 10000 --seed 1`, from this package's `tests` folder, runs many.
"""
