"""One seed, named random streams.

``stream(seed, "arrivals")`` gives the same numbers whatever other streams exist, so adding a fault
stream moves no arrival. The name is mixed in by CRC-32, which is stable between processes; seed and names
seed a PCG64 as ``numpy.random.SeedSequence`` does.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Generator for the stream ``names`` of ``seed``; equal arguments give equal numbers."""
    # Here, so that importing this module compiles nothing.
    from contracts.seed_hashing import ready_seed

    keys = [_key(name) if isinstance(name, str) else name for name in names]
    return np.random.Generator(np.random.PCG64(ready_seed([seed, *keys])))


@lru_cache(maxsize=1024)
def _key(name: str) -> int:
    return zlib.crc32(name.encode())
