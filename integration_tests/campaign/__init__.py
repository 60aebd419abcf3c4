"""Random programs, compiled and as they are, by the thousand.

In: families that draw programs from seeds. Out: what differs, crashes, hangs or fails inside, each
as a stand-alone script of a few lines. Invariant: a program is text; `family:seed` alone makes it.

    python -m integration_tests.campaign --minutes 10 --seed 0 --out FOLDER
    python -m integration_tests.campaign --show operators:17
"""
