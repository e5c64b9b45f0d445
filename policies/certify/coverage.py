"""The fleets that a certificate covers: their facts must lie within the range of its suites.

A certificate for one contract, measured kernels and some fleet sizes says nothing about another contract,
slower engines, or healthy kernels that are closer to their thresholds. Compared are the facts that a
controller has about its fleet, so that every world can check them, and the declared peak load. A controller
does not know that load beforehand; a world that declares none is not compared in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.documents.artifact import Certificate, CertifiedRange
from contracts.telemetry import Source
from controller.fleet import FleetSetup

#: Facts by name: smallest and largest value.
Facts = dict[str, tuple[float, float]]

_STEP = ("base", "prefill_token", "decode_sequence", "context_token")
#: Measured and declared facts may lie outside their range by this share; thresholds and counts may not.
TOLERANCE = 0.1
_EXACT = ("threshold of ", "replicas ")
_ROUNDING = 1e-9
#: Largest multiple of the certified number of replicas. More replicas give more evidence and headroom, and a
#: fallback that takes over because a fleet was scaled up would do harm. Fewer than certified are not covered.
_GROWTH, _GROWS = 2.0, "replicas "
#: Name of the load fact, a share of the capacity of the declared replicas. A lower load is always covered.
LOAD = "declared peak load, of all capacity"


def fleet_facts(fleet: FleetSetup, load_ratio: float | None = None) -> Facts:
    """Facts about a fleet: its size, its kernels' engines, the declared request, every clause's threshold
    with the share of it that healthy kernels use, and the declared peak load (``load_ratio``; None: not
    declared).
    """
    replicas = np.bincount(fleet.layout.replica_kernel, minlength=len(fleet.layout.kernels))
    found: Facts = {
        "replicas of a kernel": _ends(replicas),
        "requests/s of a replica": _ends(fleet.capacity_rps),
    }
    if fleet.engine is not None:
        steps, demand = fleet.engine.step_s, fleet.engine.demand
        found |= {f"step time per {name}, s": _ends(steps[:, place]) for place, name in enumerate(_STEP)}
        found["prompt tokens"] = _ends(np.array([demand.prompt_tokens]))
        found["output tokens"] = _ends(np.array([demand.output_tokens]))
    if load_ratio is not None:
        found[LOAD] = (load_ratio, load_ratio)
    return found | dict(_clauses(fleet))


def _clauses(fleet: FleetSetup) -> Iterator[tuple[str, tuple[float, float]]]:
    contract, certified = fleet.contract, fleet.certified_observations
    for index, name in enumerate(contract.clause_ids):
        threshold = float(contract.threshold[index])
        yield f"threshold of {name}", (threshold, threshold)
        if certified is None or contract.source[index] != Source.PROBE or not threshold > 0.0:
            continue
        values = certified[:, contract.applies[index], :, contract.column[index]]
        with np.errstate(invalid="ignore"):
            means = _means(values) / threshold
        if np.isfinite(means).any():
            yield f"healthy share of {name}", _ends(means[np.isfinite(means)])


def _means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the last axis, ignoring NaN; NaN if all are NaN."""
    known = np.isfinite(values)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(known.any(axis=-1), total / np.maximum(known.sum(axis=-1), 1), np.nan)


def _ends(values: NDArray[np.float64] | NDArray[np.int64]) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def ranges(every: Sequence[Facts]) -> tuple[CertifiedRange, ...]:
    """The range of the facts of ``every`` fleet, by name, for facts that all fleets have."""
    names = sorted(set.intersection(*(set(facts) for facts in every)))
    return tuple(
        CertifiedRange(
            name=name, low=min(facts[name][0] for facts in every), high=max(facts[name][1] for facts in every)
        )
        for name in names
    )


def outside(certificate: Certificate, facts: Facts) -> tuple[str, ...]:
    """Texts for the ``facts`` of a fleet that ``certificate`` does not cover; empty if all are covered.

    Facts that were not recorded at certification are reported by ``unknown``.
    """
    known = _known(certificate)
    return tuple(
        _range_text(name, low, high, known.get(name))
        for name, (low, high) in facts.items()
        if certificate.covers is not None
        and (name != LOAD or LOAD in known)
        and not _holds(name, known.get(name), low, high)
    )


def unknown(certificate: Certificate, facts: Facts) -> tuple[str, ...]:
    """Texts for facts of a fleet that cannot be compared with ``certificate``, and why."""
    if certificate.covers is None:
        return ("what it covers was not recorded when it was certified; issue it again",)
    if LOAD not in _known(certificate):
        return (f"{LOAD}: not recorded when it was certified; issue it again",)
    return () if LOAD in facts else (f"{LOAD}: it is not declared here; the supervisor judges what comes",)


def _known(certificate: Certificate) -> dict[str, CertifiedRange]:
    return {one.name: one for one in certificate.covers or ()}


def _holds(name: str, certified: CertifiedRange | None, low: float, high: float) -> bool:
    if certified is None:
        return False
    slack = 1.0 + (_ROUNDING if name.startswith(_EXACT) else TOLERANCE)
    most = _GROWTH if name.startswith(_GROWS) else slack
    return (name == LOAD or certified.low <= low * slack) and high <= certified.high * most


def _range_text(name: str, low: float, high: float, certified: CertifiedRange | None) -> str:
    said = "nothing" if certified is None else f"{certified.low:.6g} to {certified.high:.6g}"
    return f"{name}: {low:.6g} to {high:.6g} here, certified on {said}"
