"""When a server that ended is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRule:
    """Waits grow by ``factor`` from ``first_s`` to ``longest_s``; a run of ``steady_s`` begins anew.

    After ``most`` ends in a row without such a run a server is given up: what cannot start will not.
    """

    first_s: float = 0.5
    factor: float = 2.0
    longest_s: float = 30.0
    steady_s: float = 60.0
    most: int = 5

    def failures(self, before: int, ran_s: float) -> int:
        """Ends in a row, after one more that came ``ran_s`` after the server was ready (0: never was)."""
        return 1 if ran_s >= self.steady_s else before + 1

    def wait_s(self, failures: int) -> float | None:
        """How long to wait after the ``failures``-th end in a row; None: give up."""
        if failures > self.most:
            return None
        return min(self.longest_s, self.first_s * self.factor ** max(0, failures - 1))
