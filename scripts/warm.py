"""Compile the simulator's engine and the controller once and leave the result in numba's cache.

Run by the set-up step, and by ``selvage e5`` before it forks jobs: two processes that compile at the
same time would do the work twice.
"""

from __future__ import annotations

import sys
from importlib import import_module

#: Modules with a ``warm()`` that compiles their numba functions for the types the program uses.
WARMED = (
    "simulator.engine",
    "simulator.probes",
    "simulator.recorder",
    "simulator.telemetry",
    "simulator.workload",
    "policies.rehearsal",
)


def warm() -> list[str]:
    """Compile every module of ``WARMED`` that offers it; their names."""
    done = []
    for name in WARMED:
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            continue
        if hasattr(module, "warm"):
            module.warm()
            done.append(name)
    return done


if __name__ == "__main__":
    sys.stderr.write(f"compiled: {', '.join(warm()) or 'nothing to compile'}\n")
