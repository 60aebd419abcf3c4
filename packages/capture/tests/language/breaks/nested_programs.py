"""Functions that break inside of others."""

import torch
from flambeau_capture import disable, graph_break


def x():
    return torch.arange(6.0)


@disable
def opaque(value):
    return value


def break_and_add(t, log=None):
    t = t + 1
    if log is not None:
        log.append("before")
    graph_break()
    if log is not None:
        log.append("after")
    return t * 2


def through(t, log=None):
    t = break_and_add(t - 3, log)
    return t.sin()
