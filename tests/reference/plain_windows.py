"""Windows of the plain detector by definition, in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.compiled.contract import CompiledContract
from controller.detect.clauses import applies, needs_traffic, zero_tolerance
from controller.detect.detector import AlarmState, DetectorState
from controller.detect.sums import COUNT, OVER, Sums, beyond_limit, excess_of_sums, significant
from controller.detect.window import WindowDetector

Flags = NDArray[np.bool_]


def inside_limit(
    sums: Sums, ready: NDArray[np.bool_], contract: CompiledContract, confidence: float
) -> NDArray[np.bool_]:
    """Where the upper limit at one-sided ``confidence`` lies inside the clause's limit.

    At limit 0 no finite sample can show that; there a window of ``min_samples`` observations without one over
    the threshold counts as inside.
    """
    candidate = ready & (excess_of_sums(sums, contract) <= 0.0) & (sums[..., COUNT] >= contract.min_samples)
    candidate[candidate] = significant(sums, candidate, contract, confidence, above=False)
    return candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainWindows(WindowDetector):
    """``WindowDetector`` with every array made anew by numpy."""

    def update(
        self, state: Any, sums: Any, closed: Any, contract: Any, arrived: Any = None, *, consume: bool = False
    ) -> tuple[AlarmState, DetectorState]:
        """See the protocol; never consumes."""
        if sums is None:
            sums = np.zeros_like(state["judged"])
        state, fresh = self._at_once(state, sums, contract)
        if bool(closed.any()):
            state, judged = self._closed(state, sums, closed, contract)
            fresh = fresh | judged
        return AlarmState(
            alarm=state["alarm"],
            excess=state["excess"],
            inside=state["inside"],
            fresh=fresh,
            judged=state["judged"],
        ), state

    def _at_once(self, state: Any, sums: Sums, contract: CompiledContract) -> tuple[Any, Flags]:
        fresh = zero_tolerance(contract) & applies(contract) & (sums[..., OVER] > 0.0)
        rate = sums[..., OVER] / np.maximum(sums[..., COUNT], 1.0)
        return {
            **state,
            "alarm": state["alarm"] | fresh,
            "excess": np.where(fresh, np.maximum(rate, state["excess"]), state["excess"]),
            "inside": state["inside"] & ~fresh,
            "since_alarm": np.where(fresh[..., None], 0.0, state["since_alarm"]),
            "judged": np.where(fresh[..., None], sums, state["judged"]),
        }, fresh

    def _closed(self, state: Any, sums: Sums, closed: Flags, contract: CompiledContract) -> tuple[Any, Flags]:
        ends = closed[:, None, None, None]
        total = state["carried"] + sums
        ready = (total[..., COUNT] >= contract.min_samples) & applies(contract) & ends
        beyond, excess = beyond_limit(total, ready, contract)
        against = beyond | (ready & (excess_of_sums(total, contract) > 0.0))
        since = np.where(ready[..., None], state["since_alarm"] + total, state["since_alarm"])
        since = np.where(against[..., None], 0.0, since)
        inside = inside_limit(since, ready & ~beyond, contract, self.recertify_confidence)
        silent = np.where(sums[..., COUNT] > 0.0, 0, state["silent_windows"] + 1)
        expired = (silent >= self.expiry_windows) & needs_traffic(contract) & state["alarm"]
        age = np.where(ready, 0, state["carried_windows"] + 1)
        keep = ~ready & (age < self.carry_windows) & (total[..., COUNT] > 0.0)
        alarm = np.where(ready, beyond, state["alarm"] & ~expired)
        after = {
            "alarm": alarm,
            "excess": np.where(ready, excess, np.where(alarm, state["excess"], 0.0)),
            "inside": np.where(ready, inside, state["inside"] | expired),
            "carried": np.where(keep[..., None], total, 0.0),
            "carried_windows": np.where(keep, age, 0),
            "judged": np.where(ready[..., None], total, state["judged"]),
            "since_alarm": since,
            "silent_windows": silent,
        }
        wide = {name: ends.reshape(ends.shape[:1] + (1,) * (a.ndim - 1)) for name, a in after.items()}
        return {name: np.where(wide[name], after[name], state[name]) for name in after}, ready | (
            expired & ends
        )
