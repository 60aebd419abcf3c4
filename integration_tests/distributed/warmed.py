"""What the first compile of a process loads, done: a server of ranks imports this before it forks.

On one thread, as a process that has begun others cannot be copied: what compiles beside is waited
for, and a build of torch for GPUs compiles nothing, since its threads that derive do not end.
Nothing of it is left in records, and no graph on the disk.
"""

import importlib
import os
import threading

# numpy's products begin threads where they are imported, and a copy has none of them
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch

import flambeau

for _module in ("torch.distributed.fsdp", "torch.distributed.tensor.parallel", "networkx"):
    importlib.import_module(_module)


def _step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def _train(backend, **options):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    flambeau.compile(_step, backend=backend, **options)(model, optimizer, torch.ones(2, 2))
    flambeau.reset()


torch.set_num_threads(1)
if torch.version.cuda is None:
    _train("aot_eager")
    _train("inductor", options={"disk_cache": False})
for _thread in threading.enumerate():
    if _thread is not threading.current_thread():
        _thread.join()
