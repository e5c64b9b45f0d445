"""``FaultDrill``: faults against a live fleet with a steady-state hypothesis, guards and an undo."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from contracts.documents.contract import Estimator
from contracts.documents.envelope import (
    Count,
    Document,
    MetricName,
    Name,
    NonNegative,
    Positive,
    PositiveCount,
    Strict,
    Text,
)
from contracts.documents.scenario import ScheduledFault


class Guard(Strict):
    """A metric that must stay within its limit."""

    name: Name
    metric: MetricName
    estimator: Estimator = "none"
    slice: Name | None = None
    sense: Literal["at_most", "at_least"] = "at_most"
    threshold: NonNegative
    window_s: Positive = 30.0


class Undo(Strict):
    """How the drill is taken back. Healed means verified: reset, probe, re-admit slowly."""

    reset_caches: bool = True
    verify_probes: PositiveCount = 32
    readmit_over_s: NonNegative = 60.0


class DrillSpec(Strict):
    """One drill."""

    description: Text
    pool: Name
    """Name of the ``KernelPool`` it runs against."""
    faults: Annotated[tuple[ScheduledFault, ...], Field(min_length=1, max_length=16)]
    steady_state: Annotated[tuple[Guard, ...], Field(min_length=1, max_length=32)]
    abort_when: Annotated[tuple[Guard, ...], Field(max_length=32)] = ()
    undo: Undo = Undo()
    time_to_live_s: Positive
    """The injectors undo themselves after this even if nobody tells them to."""
    seed: Count = 0


class FaultDrill(Document):
    """A drill."""

    kind: Literal["FaultDrill"] = "FaultDrill"
    spec: DrillSpec
