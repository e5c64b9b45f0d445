"""Which of the replicas that a target selects are struck. One rule for simulated, live and cluster drills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def struck_share(selected: Sequence[T], replica_ratio: float | None) -> tuple[T, ...]:
    """``replica_ratio`` in (0, 1] of ``selected``, in their order; all of them where it is None.

    Rounded down, but one at least, and spread evenly: replicas are listed by kernel, so a share strikes the
    kernels alike as far as whole replicas allow.
    """
    if replica_ratio is None or not selected:
        return tuple(selected)
    count = max(1, math.floor(replica_ratio * len(selected) + 1e-9))
    return tuple(selected[index * len(selected) // count] for index in range(count))
