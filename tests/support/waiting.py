"""Waiting in tests for what another thread, process or server does."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Limit of one wait: far beyond what a slow and busy machine takes, well below a test's own time limit.
PATIENCE_S = 180.0
#: Between two looks.
_LOOK_S = 0.02


def until(
    holds: Callable[[], object],
    within_s: float = PATIENCE_S,
    what: Callable[[], str] = lambda: "it did not happen in time",
) -> None:
    """Wait until ``holds`` is true; AssertionError with ``what`` it says after ``within_s``."""
    deadline_at_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_at_s, what()
        time.sleep(_LOOK_S)
