"""The garbage collection of a Python worker of Spark, which is done after every task.

Spark's daemon calls `gc.collect()` in a worker whenever that has ended a task (PySpark 4.3,
daemon.py), and this looks at each object of each module: 15 ms of processor time for what Spark
itself imports, 35 with NumPy, Arrow and this source. A micro-batch has four such workers at least.

YA1. Objects that are there when the modules have been imported are not looked at again: they are
    what modules consist of, and stay until the process ends. Only in Spark's workers, and anew only
    where more modules have been imported since.
"""

from __future__ import annotations

import gc
import os
import sys

_WORKER = "PYTHON_WORKER_FACTORY_"  # what the names of variables begin with that a worker has

_seen: set[int] = set()  # how many modules there were when this was done


def is_worker() -> bool:
    """Return True if this process is a worker of Spark's, and not a program with a session."""
    return any(name.startswith(_WORKER) for name in os.environ)


def leave_out_modules() -> None:
    """To be called when what a task, a plan or a commit needs has been imported (YA1)."""
    modules = len(sys.modules)
    if modules in _seen:
        return
    _seen.add(modules)
    if is_worker():
        gc.freeze()
