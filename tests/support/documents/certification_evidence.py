"""Evidence of a policy that keeps every clause of the shipped meta-contract."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contracts.scoring.incident_measures import IncidentMeasures
from policies.certify.certificate import CertificationEvidence, EpisodeEvidence, ServiceShares

#: Service of a fleet without moves: the same.
NOBODY = ServiceShares(useful_ratio=0.98, failed_or_exposed_ratio=0.001)


def incident(mttr_s: float = 100.0, lag_s: float = 20.0, *, mitigated: bool = False) -> IncidentMeasures:
    """A silent incident that was found and ended."""
    return IncidentMeasures(
        fault="f",
        silent=True,
        onset_at_s=50.0,
        breach_s=0.0,
        mitigated=mitigated,
        detected=True,
        detection_lag_s=lag_s,
        recovered=True,
        mttr_s=mttr_s,
        visible_s=0.0,
        violation_lag_s=mttr_s,
        visible_lag_s=mttr_s,
        slice_lag_s=mttr_s,
        lower_bound_s=2.0,
        excess_s=max(0.0, mttr_s - 2.0),
    )


def episode(seed: int = 0, scenario: str = "a", **changes: Any) -> EpisodeEvidence:
    """Half an hour of five slices with one incident, in which all went well."""
    eligible = EpisodeEvidence(
        scenario=scenario,
        seed=seed,
        incident=incident(),
        slice_hours=2.5,
        false_switches=0,
        moves=2,
        turns=0,
        shed_requests=0.0,
        offered_requests=1000.0,
        empty_ticks=0,
        demoted=False,
        service=ServiceShares(useful_ratio=0.98, failed_or_exposed_ratio=0.001),
    )
    return replace(eligible, **changes)


def sound_evidence() -> CertificationEvidence:
    """Twenty seeds of five scenarios, and 125 slice-days of quiet."""
    return CertificationEvidence(
        incidents=tuple(episode(seed, name) for seed in range(20) for name in "abcde"),
        quiet=tuple(episode(seed, incident=None, slice_hours=30.0, moves=0) for seed in range(100)),
        decision_ms=np.linspace(0.5, 1.5, 1200),
        still={(name, seed): NOBODY for seed in range(20) for name in "abcde"},
    )
