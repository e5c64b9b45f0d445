"""A ``MetaContract`` as arrays: one entry per metric of the policy's own contract.

The order of the axis is ``POLICY_METRICS``. What no clause names is not watched and has an infinite limit (0
where the clause is a lower limit), so that the stricter of two settings is plain ``min`` or ``max``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from contracts.documents.meta import Exemption, MetaClause, MetaContract, PolicyMetric
from contracts.loading.loader import document_sha256

#: Names of the metric axis (M) and of the exemption axis (E).
POLICY_METRICS: tuple[str, ...] = get_args(PolicyMetric)
EXEMPTIONS: tuple[str, ...] = get_args(Exemption)


class Remedy(IntEnum):
    """What happens online when a clause is broken."""

    NONE = 0
    CLAMP = 1  # the shield, or the controller, keeps the proposal inside
    HOLD = 2  # the last table stands
    DEMOTE = 3  # the baseline drives


_REMEDIES = {
    "refuse_artifact": Remedy.NONE,
    "clamp": Remedy.CLAMP,
    "hold": Remedy.HOLD,
    "demote": Remedy.DEMOTE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMeta:
    """Limits on a policy: M metrics of ``POLICY_METRICS`` and E exemptions of ``EXEMPTIONS``."""

    name: str
    sha256: str  # hex, of the canonical document
    baseline: str  # policy that a demoted one hands over to
    limit: NDArray[np.float64]  # [M] in the metric's unit; inf, or 0 for a lower limit: no clause
    online: NDArray[np.bool_]  # [M] watched while the policy drives
    remedy: NDArray[np.int64]  # [M] an ``Remedy``
    exempt: NDArray[np.bool_]  # [M, E]
    repromote_after_s: float  # without a violation, until a demoted policy drives again
    most_repromotions: int  # so often, then an operator decides

    def most(self, metric: str) -> float:
        """Online limit of ``metric`` (inf, or 0 for ``dwell_s``, where nothing is asked online)."""
        index = POLICY_METRICS.index(metric)
        return float(self.limit[index]) if self.online[index] else _no_limit(metric)

    def exempts(self, metric: str, exemption: str) -> bool:
        """Whether the clause on ``metric`` leaves ``exemption`` out."""
        return bool(self.exempt[POLICY_METRICS.index(metric), EXEMPTIONS.index(exemption)])


def compile_meta(document: MetaContract) -> CompiledMeta:
    """Arrays of ``document``, which the loader has checked: one clause per metric at most."""
    spec = document.spec
    by_metric: dict[str, MetaClause] = {clause.metric: clause for clause in spec.clauses}
    rows = [by_metric.get(metric) for metric in POLICY_METRICS]
    return CompiledMeta(
        name=document.metadata.name,
        sha256=document_sha256(document),
        baseline=spec.baseline,
        limit=np.array([_limit(metric, row) for metric, row in zip(POLICY_METRICS, rows, strict=True)]),
        online=np.array([row is not None and row.checked != "offline" for row in rows]),
        remedy=np.array([_remedy(row) for row in rows], dtype=np.int64),
        exempt=np.array([[row is not None and name in row.exempt for name in EXEMPTIONS] for row in rows]),
        repromote_after_s=spec.repromotion.after_s,
        most_repromotions=spec.repromotion.at_most,
    )


def _limit(metric: str, clause: MetaClause | None) -> float:
    return _no_limit(metric) if clause is None else clause.threshold


def _remedy(clause: MetaClause | None) -> int:
    return int(Remedy.NONE if clause is None else _REMEDIES[clause.on_violation])


def _no_limit(metric: str) -> float:
    return 0.0 if metric == "dwell_s" else float("inf")
