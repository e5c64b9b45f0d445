"""A drill on a scripted target, without a fleet."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from contracts.documents import FaultDrill, PoolSpec
from contracts.documents.pool import Home, PoolKernel
from contracts.loading.loader import load_text
from contracts.scoring.episode import EpisodeRecord, truncate
from faults.client.replica import Proof
from faults.client.wire import DrillError
from faults.drill.outcome import Mended
from faults.drill.plan import DrillPlan, Strike, plan_drill
from faults.drill.runner import TargetGoneError
from tests.support.documents.documents_written import envelope
from tests.support.fleets.episodes import broken_record, move_at, step_fault

ONSET_S, UNDO_S, TOTAL_S = 20, 60, 80
POOL = PoolSpec(
    kernels=(
        PoolKernel(name="fast", profile="none.yaml", replicas=2, role="serving"),
        PoolKernel(name="good", profile="none.yaml", replicas=1, role="known_good"),
    ),
    home=(Home(slice="code", kernel="fast"), Home(slice="prose", kernel="fast")),
)


def drill_document(**changes: Any) -> FaultDrill:
    """A drill of one fault from 20 s to 60 s; ``changes`` replace parts of its spec."""
    spec: dict[str, object] = {
        "description": "one bad replica",
        "pool": "made",
        "load": {"rate_rps": 20.0},
        "faults": [
            {
                "name": "bad",
                "kind": "hang",
                "target": {"kernel": "fast", "replica": 0},
                "onset_s": float(ONSET_S),
            }
        ],
        "steady_state": [{"name": "answers", "metric": "failure_rate", "threshold": 0.05, "window_s": 10.0}],
        "abort_when": [{"name": "outage", "metric": "failure_rate", "threshold": 0.5, "window_s": 5.0}],
        "time_to_live_s": float(UNDO_S),
        "after_s": float(TOTAL_S - UNDO_S),
    }
    text = json.dumps(envelope("FaultDrill", "made", spec | changes))  # YAML as well
    found = load_text(text, "drill.yaml")
    assert isinstance(found, FaultDrill)
    return found


def drill_plan(**changes: Any) -> DrillPlan:
    """That drill on a pool of three replicas."""
    return plan_drill(drill_document(**changes), "drill.yaml", POOL)


def healed_record() -> EpisodeRecord:
    """The home kernel is broken from the onset to the undo, and traffic leaves it ten seconds later."""
    record = replace(broken_record(TOTAL_S, ONSET_S), incident=step_fault(float(ONSET_S), TOTAL_S))
    record.violating[UNDO_S:] = False
    return move_at(record, ONSET_S + 10)


@dataclass
class ScriptedTarget:
    """Reports the test's script; records its calls, in order, in ``told``."""

    episode: EpisodeRecord = field(default_factory=healed_record)
    shows_before: bool = False
    shows_after: bool = True
    refuses: bool = False
    clean: bool = True
    busy_until_s: float = 0.0
    ends_at_s: float = float("inf")
    gone_at_s: float = float("inf")
    stop_at_s: float = float("inf")
    heals: bool = True
    heals_at_s: float = 0.0
    told: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def begin(self) -> None:
        """Record the call."""
        self.told.append("begin")

    def advance(self) -> float:
        """Advance one second, unless the script differs."""
        self.now_s += 1.0
        if self.now_s >= self.stop_at_s:
            raise KeyboardInterrupt
        if self.now_s >= self.gone_at_s:
            raise TargetGoneError("the fleet is gone")
        return self.now_s

    def record(self) -> EpisodeRecord:
        """The script so far."""
        return truncate(self.episode, self.now_s)

    def proof(self, strike: Strike) -> Proof:
        """As scripted."""
        injected = f"inject {strike.fault.name}" in self.told
        return Proof(happened=self.shows_after if injected else self.shows_before, evidence="scripted")

    def inject(self, strike: Strike) -> None:
        """Record the call, or refuse."""
        self.told.append(f"inject {strike.fault.name}")
        if self.refuses:
            raise DrillError("not here")

    def keep(self) -> None:
        """Nothing has a lease, except a fault that ends by itself."""
        if self.now_s >= self.ends_at_s:
            raise DrillError("bad ended by itself")

    def undo(self, strikes: tuple[Strike, ...]) -> tuple[bool, str]:
        """Record the call."""
        self.told.append("undo " + " ".join(one.fault.name for one in strikes))
        if self.now_s < self.busy_until_s:
            raise DrillError("the server is busy")
        return self.clean, "as scripted"

    def mend(self) -> tuple[Mended, ...]:
        """Healed from ``heals_at_s`` on, or never, or failed."""
        healed = None if self.now_s < self.heals_at_s else self.heals
        return (Mended(replica="fast-0", healed=healed, told="as scripted", lines=((61.0, "said once"),)),)

    def end(self) -> None:
        """Record the call."""
        self.told.append("end")


@dataclass
class NotedLedger:
    """Writes into a target's list, so that the order shows."""

    told: list[str]
    full: bool = False
    full_at_the_end: bool = False

    def open(self) -> None:
        """Record the call, or fail as a full disk does."""
        if self.full:
            raise OSError(28, "No space left on device", "drill.json")
        self.told.append("ledger open")

    def close(self, how: str) -> None:
        """Record the call, or fail as a full disk does."""
        if self.full_at_the_end:
            raise OSError(28, "No space left on device", "drill.json")
        self.told.append(f"ledger {how}")
