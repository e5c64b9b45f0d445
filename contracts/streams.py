"""One seed, named random streams.

``stream(seed, "arrivals")`` gives the same numbers whatever other streams exist, so adding a fault
stream moves no arrival. The name is mixed in by CRC-32, which is stable between processes.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Generator for the stream ``names`` of ``seed``; equal arguments give equal numbers."""
    keys = [name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *keys])))
